# Finds LibTorch in a PyTorch wheel or a LibTorch archive. Defines the target LibTorch::LibTorch and LibTorch_VERSION.
# Searches the cache variable or environment variable ZT_TORCH_DIR (the folder with include/ and lib/), then the project's
# .venv, then the python3 on the path. The wheel's own TorchConfig.cmake is not used: it requires a CUDA toolkit and links
# libtorch_cuda.
if(NOT ZT_TORCH_DIR AND DEFINED ENV{ZT_TORCH_DIR})
  set(ZT_TORCH_DIR $ENV{ZT_TORCH_DIR})
endif()
if(NOT ZT_TORCH_DIR)
  foreach(python ${CMAKE_SOURCE_DIR}/.venv/bin/python python3)
    execute_process(
      COMMAND ${python} -c "import importlib.util, os; print(os.path.dirname(importlib.util.find_spec('torch').origin))"
      OUTPUT_VARIABLE found OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET RESULT_VARIABLE status)
    if(status EQUAL 0)
      set(ZT_TORCH_DIR ${found})
      break()
    endif()
  endforeach()
endif()
set(ZT_TORCH_DIR "${ZT_TORCH_DIR}" CACHE PATH "The folder with LibTorch's include/ and lib/")

# The version with its build, as in "2.11.0+cu130".
if(EXISTS ${ZT_TORCH_DIR}/version.py)
  file(STRINGS ${ZT_TORCH_DIR}/version.py line REGEX "^__version__")
elseif(EXISTS ${ZT_TORCH_DIR}/build-version)
  file(STRINGS ${ZT_TORCH_DIR}/build-version line)
endif()
string(REGEX MATCH "[0-9]+\\.[0-9]+\\.[0-9]+[^' ]*" LibTorch_VERSION "${line}")

include(FindPackageHandleStandardArgs)
find_library(LibTorch_CPU torch_cpu PATHS ${ZT_TORCH_DIR}/lib NO_DEFAULT_PATH)
find_library(LibTorch_C10 c10 PATHS ${ZT_TORCH_DIR}/lib NO_DEFAULT_PATH)
find_package_handle_standard_args(LibTorch REQUIRED_VARS LibTorch_CPU LibTorch_C10 VERSION_VAR LibTorch_VERSION
  REASON_FAILURE_MESSAGE "Run scripts/setup.sh, or set ZT_TORCH_DIR to a folder with LibTorch's include/ and lib/.")

if(LibTorch_FOUND AND NOT TARGET LibTorch::LibTorch)
  # The wheel's include folder also holds copies of fmt, nlohmann and others. So only LibTorch's own headers are linked.
  set(headers ${CMAKE_BINARY_DIR}/libtorch_include)
  file(MAKE_DIRECTORY ${headers})
  foreach(folder ATen c10 torch)
    file(CREATE_LINK ${ZT_TORCH_DIR}/include/${folder} ${headers}/${folder} SYMBOLIC)
  endforeach()
  add_library(LibTorch::LibTorch INTERFACE IMPORTED)
  target_include_directories(LibTorch::LibTorch SYSTEM INTERFACE ${headers})
  # libtorch_cpu needs the libraries of the CUDA runtime even without a GPU. In a wheel they are in a neighbouring folder.
  file(GLOB cuda_runtime ${ZT_TORCH_DIR}/../nvidia/cu*/lib)
  target_link_libraries(LibTorch::LibTorch INTERFACE ${LibTorch_CPU} ${LibTorch_C10})
  target_link_options(LibTorch::LibTorch INTERFACE -Wl,--allow-shlib-undefined)
  # at::parallel_for is a loop on one thread in code that is compiled without OpenMP. The threads are those of LibTorch's own
  # library: another one would have a second team of threads. ThreadSanitizer does not know OpenMP's barriers.
  if(NOT ZT_SANITIZE MATCHES "thread")
    file(GLOB threads ${ZT_TORCH_DIR}/lib/libgomp*.so*)
    if(NOT threads)
      find_library(threads gomp PATH_SUFFIXES gcc/x86_64-linux-gnu/12 REQUIRED)
    endif()
    list(GET threads 0 threads)
    target_compile_options(LibTorch::LibTorch INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-fopenmp>)
    target_link_libraries(LibTorch::LibTorch INTERFACE ${threads})
  endif()
  set(ZT_RUNTIME_PATHS ${ZT_TORCH_DIR}/lib ${cuda_runtime})
endif()
