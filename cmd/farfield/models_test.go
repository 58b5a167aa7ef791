package main

import (
	"strings"
	"testing"

	"github.com/farfield-ml/farfield/internal/fetch"
)

// A name that is no folder is looked up among the fetched models.
func TestInitTakesNameOfModel(t *testing.T) {
	t.Setenv("FARFIELD_DATA", t.TempDir())
	refuses(t, "model all-MiniLM-L6-v2: is not in ", "train", "--init", "all-MiniLM-L6-v2", "--task", "file", "--data", "none.csv")
}

func TestModelsListNamesEveryModel(t *testing.T) {
	out := works(t, "models", "list", "--folder", t.TempDir())
	for _, m := range fetch.Models() {
		if !strings.Contains(out, "\n"+m.Name+" ") {
			t.Errorf("%s is not in\n%s", m.Name, out)
		}
	}
	refuses(t, `model "MiniLM": unknown; there are: all-MiniLM-L6-v2, `, "models", "list", "MiniLM")
	refuses(t, "config.json is not there; its address is https://", "models", "fetch", "all-MiniLM-L6-v2", "--from", t.TempDir(), "--folder", t.TempDir())
}
