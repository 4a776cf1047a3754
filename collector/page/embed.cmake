# Writes OUTPUT, a C++ file with the bytes of PROGRAM and STYLE (neither given: empty) as collector/page/assets.h declares them.
function(bytes_of file name result)
  if(NOT file)
    set(${result} "const std::string_view ${name};\n" PARENT_SCOPE)
    return()
  endif()
  file(READ ${file} hex HEX)
  string(REGEX REPLACE "([0-9a-f][0-9a-f])" "0x\\1," hex "${hex}")
  set(${result} "constexpr unsigned char ${name}Bytes[] = {${hex}};\n\
const std::string_view ${name}(reinterpret_cast<const char*>(${name}Bytes), sizeof(${name}Bytes));\n" PARENT_SCOPE)
endfunction()

bytes_of("${PROGRAM}" kProgram program)
bytes_of("${STYLE}" kStyle style)
file(WRITE ${OUTPUT} "#include \"collector/page/assets.h\"\n\nnamespace gpuprobe::page {\n\n${program}${style}\n}  // namespace gpuprobe::page\n")
