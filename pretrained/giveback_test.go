package pretrained

import (
	"os"
	"path/filepath"
	"testing"
)

// TestGiveBackWritesFoldersForTransformers writes pairs of folders that
// internal/lab/peers/transformers_folders.py compares.
func TestGiveBackWritesFoldersForTransformers(t *testing.T) {
	root := os.Getenv("FARFIELD_GIVE_BACK")
	if root == "" {
		t.Skip("0 folders written: needs FARFIELD_GIVE_BACK")
	}
	dirs := fixtureFolders(t, sharedFolder)
	for _, dir := range dirs {
		m, err := Open(dir)
		if err != nil {
			t.Fatal(err)
		}
		p := m.Model().Params().All()[0]
		p.Data[1] += 0.125
		to := filepath.Join(root, filepath.Base(dir)+"_changed")
		if err := m.Save(filepath.Join(to, "before")); err != nil {
			t.Error(err)
		}
		if err := Write(filepath.Join(to, "after"), m.Model(), nil); err != nil {
			t.Errorf("%s: %v", dir, err)
		}
		if err := unchanged(dir, filepath.Join(root, filepath.Base(dir)+"_copied")); err != nil {
			t.Error(err)
		}
	}
	t.Logf("%d folders written twice", len(dirs))
}

// unchanged writes copies of a folder that did not change.
func unchanged(dir, to string) error {
	m, err := Open(dir)
	if err != nil {
		return err
	}
	if err := m.Save(filepath.Join(to, "before")); err != nil {
		return err
	}
	return Write(filepath.Join(to, "after"), m.Model(), nil)
}
