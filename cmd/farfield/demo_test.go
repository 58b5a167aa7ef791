package main

import (
	"os"
	"path/filepath"
	"testing"
)

func TestDemoRefuses(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o666); err != nil {
		t.Fatal(err)
	}
	refuses(t, "not a folder", "demo", "--out", file)
	refuses(t, "--out: is pictures, but --train draws no pictures", "demo", "--train", "--out", "pictures")
}
