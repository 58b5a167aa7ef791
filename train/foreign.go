package train

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/farfield-ml/farfield/internal/infile"
)

// maxForeignBytes bounds the configuration of another program that is looked at.
const maxForeignBytes = 1 << 20

// CheckForeign reports a folder or file that another program wrote as a model, by what
// it is.
func CheckForeign(path string) error {
	if what := describeForeign(path); what != "" {
		return fmt.Errorf("%s: is %s, which this version does not read", path, what)
	}
	return nil
}

// describeForeign says what the model of another program is, such as "a Hugging Face folder
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
	if isTransformers(filepath.Join(path, configFile)) {
		files := has(configFile, "model.safetensors", "model.safetensors.index.json", "pytorch_model.bin", "tokenizer.json")
		return "a Hugging Face folder (" + strings.Join(files, ", ") + ")"
	}
	for _, k := range []struct{ file, what string }{
		{"saved_model.pb", "a TensorFlow folder"}, {"params.json", "a Llama folder"}, {"pytorch_model.bin", "a PyTorch folder"},
		{"model.onnx", "an ONNX folder"}, {"adapter_config.json", "a PEFT adapter"},
	} {
		if len(has(k.file)) > 0 {
			return k.what + " (" + k.file + ")"
		}
	}
	if list, _ := filepath.Glob(filepath.Join(path, "*.gguf")); len(list) > 0 {
		return "a folder of GGUF (" + filepath.Base(list[0]) + ")"
	}
	return ""
}

// isTransformers reports whether a file is a configuration of the library transformers.
func isTransformers(path string) bool {
	var c map[string]json.RawMessage
	if infile.ReadJSON(path, maxForeignBytes, &c) != nil {
		return false
	}
	_, kind := c["model_type"]
	_, classes := c["architectures"]
	return kind || classes
}

// describeForeignFile says what a file is that is no folder of a model.
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
