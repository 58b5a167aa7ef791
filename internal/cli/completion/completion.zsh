#compdef farfield
# Completion of farfield for zsh: source <(farfield completion zsh), behind compinit,
# or as a file _farfield in a folder of $fpath.
_farfield() {
    local line word
    local -a whole open
    while IFS= read -r line; do
        case $line in
        :files) _files ;;
        :folders) _files -/ ;;
        *)
            word=${line%%$'\t'*}
            if [[ $word == *= ]]; then
                open+=("${word//:/\\:}:${line#*$'\t'}")
            else
                whole+=("${word//:/\\:}:${line#*$'\t'}")
            fi
            ;;
        esac
    done < <("${words[1]}" complete -- "${(@)words[2,CURRENT]}" 2>/dev/null)
    (( $#whole )) && _describe farfield whole
    (( $#open )) && _describe farfield open -S ''
}
if [[ $funcstack[1] == _farfield ]]; then
    _farfield "$@"
else
    compdef _farfield farfield
fi
