package task

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// find returns the path of the first of names that is in a folder.
func find(folder string, names ...string) (string, error) {
	for _, name := range names {
		path := filepath.Join(folder, filepath.FromSlash(name))
		if _, err := os.Stat(path); err == nil {
			return path, nil
		}
	}
	return "", fmt.Errorf("%s: it holds no %s; farfield data fetches and makes data sets", folder, strings.Join(names, ", no "))
}
