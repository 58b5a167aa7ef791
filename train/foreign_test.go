package train

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestFoldersOfOtherProgramsAreNamed(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		want  string
		files map[string]string
	}{
		{"a Hugging Face folder (config.json, model.safetensors)", map[string]string{"config.json": `{"model_type": "llama"}`, "model.safetensors": ""}},
		{"a Hugging Face folder (config.json, pytorch_model.bin, tokenizer.json)", map[string]string{"config.json": `{"architectures": ["GPT2LMHeadModel"]}`, "pytorch_model.bin": "", "tokenizer.json": "{}"}},
		{"a Llama folder (params.json)", map[string]string{"params.json": "{}", "consolidated.00.pth": ""}},
		{"a folder of GGUF (a.gguf)", map[string]string{"a.gguf": ""}},
	} {
		dir := t.TempDir()
		for name, text := range c.files {
			if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o666); err != nil {
				t.Fatal(err)
			}
		}
		_, _, err := loadModel(dir)
		if err == nil || !strings.Contains(err.Error(), dir+": is "+c.want+", ") {
			t.Errorf("error is %v, want %s", err, c.want)
		}
	}
	file := filepath.Join(t.TempDir(), "a.gguf")
	if err := os.WriteFile(file, []byte("GGUF\x03\x00\x00\x00\x00"), 0o666); err != nil {
		t.Fatal(err)
	}
	if _, _, err := loadModel(file); err == nil || !strings.Contains(err.Error(), "is a GGUF file") {
		t.Errorf("error is %v", err)
	}
	for _, text := range []string{`{"task": "text"}`, "", "[1]"} {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, "config.json"), []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
		if what := describeForeign(dir); what != "" {
			t.Errorf("%q is %s", text, what)
		}
	}
}
