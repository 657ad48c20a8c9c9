target_sources(engine PRIVATE
  model/describe.c
  model/dtype.c
  model/folder_hint.c
  model/foreign_file.c
  model/fuse.c
  model/layout.c
  model/model.c
  model/network.c
  model/network_batching.c
  model/network_layers.c
  model/notes.c
  model/op_hint.c
  model/safetensors.c
  model/sentence.c
  model/weights.c
  model/weights_check.c
)
