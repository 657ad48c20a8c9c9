# The exporter against the libraries' own modules, in an environment with torch: deploy/install-deps makes it.
set(VX_VENV_TORCH ${CMAKE_SOURCE_DIR}/build/venv-torch CACHE PATH "Python environment of the exporter's tests")
if(VX_SERVER AND NOT VX_SANITIZE)
  foreach(library cli recorded replace weights traps other_voxels spconv minkowski torchsparse torchsparse_refusals trellis trellis_backends warpconvnet functions refusals definition onnx onnx_refused reference families_segmentation families_detection families_voxelnext families_trellis calibrate gpu_families examples)
    vx_script_test(NAME export_${library} LABELS export SECONDS 25
      COMMAND ${CMAKE_CURRENT_LIST_DIR}/run ${VX_VENV_TORCH} tests/export/test_${library}.py
      ENVIRONMENT "VOXELD=${CMAKE_BINARY_DIR}/bin/voxeld" "VOXEL=${CMAKE_BINARY_DIR}/bin/voxel"
        "PYTHONDONTWRITEBYTECODE=1")
  endforeach()
endif()
