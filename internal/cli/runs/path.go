package runs

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/farfield-ml/farfield/internal/cli/env"
	"github.com/farfield-ml/farfield/internal/cli/flags"
	"github.com/farfield-ml/farfield/internal/fetch"
)

// ResolveModel returns the folder of a model: path itself, or where the model with this
// name of the catalogue was fetched to. It returns an error if the model is not at hand.
func ResolveModel(path string) (string, error) {
	if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
		return path, nil
	}
	s, err := fetch.LookupModel(path)
	if err != nil {
		return path, nil // the verb says that the path does not exist
	}
	data := flags.DataFolder{Folder: os.Getenv("FARFIELD_DATA")}
	folder, err := data.ModelsPath()
	if err != nil {
		return "", err
	}
	if !s.State(folder).IsReady() {
		return "", fmt.Errorf("model %s: is not in %s; farfield models fetch %s", s.Name, folder, s.Name)
	}
	return filepath.Join(folder, s.Name), nil
}

// ModelFiles returns the files of the model at path, which no output may replace: of a run with its
// checkpoints, of a checkpoint, or of a published folder. Other files in the folder are left out.
func ModelFiles(path string) []string {
	dir, err := ResolveModel(path)
	if err != nil {
		return nil // the verb says so
	}
	return env.ListFiles(dir, isModelFile)
}

// isModelFile reports whether a run or a published folder has files of this name.
func isModelFile(name string) bool {
	switch filepath.Ext(name) {
	case ".json", ".jsonl", ".model", ".jinja":
		return true
	case ".safetensors":
		return strings.HasPrefix(name, "model") || name == "optim.safetensors" || name == "adapters.safetensors"
	}
	return name == "latest" || name == "vocab.txt" || name == "merges.txt" || name == "classes.txt" || name == "columns.txt" || strings.HasPrefix(name, "events.")
}
