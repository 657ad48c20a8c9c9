# The exporter against the libraries' own modules, in an environment with torch: deploy/install-deps makes it.
set(VX_VENV_TORCH ${CMAKE_SOURCE_DIR}/build/venv-torch CACHE PATH "Python environment of the exporter's tests")
if(VX_SERVER AND NOT VX_SANITIZE)
  # vx_export_test(name [file...]): tests/export/test_FILE.py, that of its name without files.  Files of one test share
  # an import of torch and spconv, which takes 3 s of a core; none has others that change what the next one imports.
  function(vx_export_test name)
    set(files ${ARGN})
    if(NOT files)
      set(files ${name})
    endif()
    list(TRANSFORM files REPLACE "(.+)" "tests/export/test_\\1.py")
    vx_script_test(NAME export_${name} LABELS export SECONDS 25
      COMMAND ${CMAKE_CURRENT_FUNCTION_LIST_DIR}/run ${VX_VENV_TORCH} ${files}
      ENVIRONMENT "VOXELD=${CMAKE_BINARY_DIR}/bin/voxeld" "VOXEL=${CMAKE_BINARY_DIR}/bin/voxel"
        "PYTHONDONTWRITEBYTECODE=1")
  endfunction()
  vx_export_test(cli)
  vx_export_test(files recorded replace weights traps)
  vx_export_test(spconv spconv other_voxels calibrate)
  vx_export_test(minkowski minkowski reference)
  vx_export_test(torchsparse torchsparse torchsparse_refusals)
  vx_export_test(trellis trellis trellis_backends)
  vx_export_test(warpconvnet)
  vx_export_test(refusals)
  vx_export_test(onnx onnx onnx_refused functions definition)
  vx_export_test(families_segmentation)
  vx_export_test(families_detection families_detection families_voxelnext)
  vx_export_test(families_trellis)
  vx_export_test(gpu_families)
  vx_export_test(examples)
endif()
