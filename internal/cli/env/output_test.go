package env

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/farfield-ml/farfield/internal/lock"
)

func TestOutputOfTwoNamesHasOneOwner(t *testing.T) {
	dir := t.TempDir()
	name, link := filepath.Join(dir, "out"), filepath.Join(dir, "link")
	if err := os.Symlink(name, link); err != nil {
		t.Skip(err)
	}
	f, l, err := OwnFile(name)
	if err != nil {
		t.Fatal(err)
	}
	var held *lock.HeldError
	if _, _, err := OwnFile(link); !errors.As(err, &held) {
		t.Errorf("error is %v, want %T", err, held)
	}
	f.Close()
	l.Release()
	if f, l, err = OwnFile(link); err != nil {
		t.Fatal(err)
	}
	f.Close()
	l.Release()
}
