package flags

import (
	"os"
	"path/filepath"
	"runtime"

	"github.com/farfield-ml/farfield/internal/cli/env"
)

// DataFolder is the flag for the folder of data sets and fetched models.
type DataFolder struct {
	Folder string `placeholder:"DIR" env:"FARFIELD_DATA" help:"Folder of data sets and fetched models ($$${env}, or a folder of the user)."`
}

// Path returns the folder of data sets and fetched models: the flag's, or one of the user. It returns an
// error if the flag is not given and the system knows no folder of the user.
func (d *DataFolder) Path() (string, error) {
	if d.Folder != "" {
		return d.Folder, nil
	}
	if home := os.Getenv("XDG_DATA_HOME"); filepath.IsAbs(home) && runtime.GOOS != "windows" {
		return filepath.Join(home, "farfield"), nil
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", env.InputErrorf("--folder: it is not given, and there is no other: %w", err)
	}
	return filepath.Join(cache, "farfield", "data"), nil
}

// ModelsPath returns the folder of fetched models, which is in the folder of data sets. It returns
// an error where Path does.
func (d *DataFolder) ModelsPath() (string, error) {
	path, err := d.Path()
	return filepath.Join(path, "models"), err
}
