package runs

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/farfield-ml/farfield/fetch"
	"github.com/farfield-ml/farfield/internal/cli/flags"
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
