package train

import (
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/farfield-ml/farfield/internal/infile"
	"github.com/farfield-ml/farfield/internal/published"
)

// publishedKind begins the description of a folder that package published reads.
const publishedKind = "a Hugging Face folder"

// CheckForeign returns an error that names the format if path is a model of another program, and
// nil otherwise.
func CheckForeign(path string) error {
	if what := describeForeign(path); what != "" {
		if strings.HasPrefix(what, publishedKind) {
			return fmt.Errorf("%s: is %s, and a run or a checkpoint is needed here", path, what)
		}
		return fmt.Errorf("%s: is %s, which this version does not read", path, what)
	}
	return nil
}

// describeForeign describes the model of another program, such as "a Hugging Face folder
// (config.json, model.safetensors)"; "" for anything else.
func describeForeign(path string) string {
	info, err := os.Stat(path)
	if err != nil {
		return ""
	}
	if !info.IsDir() {
		return describeForeignFile(path)
	}
	has := func(names ...string) (there []string) {
		for _, name := range names {
			if info, err := os.Stat(filepath.Join(path, name)); err == nil && info.Mode().IsRegular() {
				there = append(there, name)
			}
		}
		return there
	}
	if published.IsFolder(path) {
		files := has(configFile, "model.safetensors", "model.safetensors.index.json", "pytorch_model.bin", "tokenizer.json")
		return publishedKind + " (" + strings.Join(files, ", ") + ")"
	}
	for _, k := range []struct{ file, what string }{
		{"saved_model.pb", "a TensorFlow folder"}, {"params.json", "a Llama folder"}, {"pytorch_model.bin", "a PyTorch folder"},
		{"model.onnx", "an ONNX folder"}, {"adapter_config.json", "a PEFT adapter"},
	} {
		if len(has(k.file)) > 0 {
			return k.what + " (" + k.file + ")"
		}
	}
	if list, _ := fs.Glob(os.DirFS(path), "*.gguf"); len(list) > 0 {
		return "a folder of GGUF (" + list[0] + ")"
	}
	return ""
}

// describeForeignFile describes a single file of another program; "" for anything else.
func describeForeignFile(path string) string {
	f, err := infile.Open(path)
	if err != nil {
		return ""
	}
	defer f.Close()
	head := make([]byte, 9)
	n, _ := io.ReadFull(f, head)
	switch {
	case strings.HasPrefix(string(head[:n]), "GGUF"):
		return "a GGUF file"
	case n == 9 && head[8] == '{':
		return "a safetensors file, not the folder of a run"
	case strings.HasPrefix(string(head[:n]), "PK"):
		return "a PyTorch or zip file"
	}
	return ""
}
