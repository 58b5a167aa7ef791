package task

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// ErrNoData is wrapped by the errors of tasks whose data set is missing.
var ErrNoData = errors.New("farfield data fetches and makes data sets")

// findFile returns the path of the first name that exists in a folder. It returns an error
// that wraps ErrNoData if none does.
func findFile(folder string, names ...string) (string, error) {
	for _, name := range names {
		path := filepath.Join(folder, filepath.FromSlash(name))
		if _, err := os.Stat(path); err == nil {
			return path, nil
		}
	}
	return "", fmt.Errorf("%s: it holds no %s; %w", folder, strings.Join(names, ", no "), ErrNoData)
}
