package runs

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/signal"
	"path/filepath"
	"strings"

	"github.com/farfield-ml/farfield/internal/cli/env"
	"github.com/farfield-ml/farfield/internal/cli/flags"
	"github.com/farfield-ml/farfield/internal/fetch"
)

// ResolveModel returns the folder of a model. path is that folder, the name of a model that was
// fetched from the catalogue, or org/name[@revision], which is fetched from the hub if the cache
// lacks it. ResolveModel returns an error if it does not find the model.
func ResolveModel(path string) (string, error) {
	if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
		return path, nil
	}
	if name, is := fetch.ParseHubName(path); is {
		return resolveHub(path, name)
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

// resolveHub returns the folder of a model of the hub. A path without such a model on the hub is left as
// it is where its first part is a folder: the verb says that it does not exist.
func resolveHub(path string, name fetch.HubName) (string, error) {
	if _, err := os.Stat(filepath.Dir(path)); err == nil {
		return path, nil
	}
	hub, err := fetch.NewHub()
	if err != nil {
		return "", err
	}
	if dir, has := hub.Find(name); has {
		return dir, nil
	}
	if !hub.IsOffline {
		fmt.Fprintf(os.Stderr, "fetching %s from %s to %s\n", name, hub.Endpoint, hub.Cache)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	return hub.Fetch(ctx, name)
}

// ModelFiles returns the files of the model at path, which outputs must not replace: those of a run
// and its checkpoints, of a checkpoint, or of a published folder. It leaves out other files in the
// folder.
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
