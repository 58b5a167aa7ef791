package published

import (
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/farfield-ml/farfield/internal/array"
	"github.com/farfield-ml/farfield/internal/atomicfile"
	"github.com/farfield-ml/farfield/model"
	"github.com/farfield-ml/farfield/rng"
)

// TestGiveBackWritesFoldersForTransformers writes pairs of folders, and tuned folders, that
// lab/peers/transformers_folders.py compares.
func TestGiveBackWritesFoldersForTransformers(t *testing.T) {
	t.Parallel()
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
		if err := writeTuned(t, dir, filepath.Join(root, filepath.Base(dir)+"_tuned")); err != nil {
			t.Errorf("%s: %v", dir, err)
		}
		if err := unchanged(dir, filepath.Join(root, filepath.Base(dir)+"_copied")); err != nil {
			t.Error(err)
		}
	}
	t.Logf("%d folders written twice", len(dirs))
}

// writeTuned writes a folder as training with new classes gives it back, and expected.npz with
// the logits of the trained model. It writes nothing for a family without classes of texts.
func writeTuned(t *testing.T, dir, to string) error {
	classes := []string{"no", "perhaps", "yes"}
	c, err := OpenClassifier(dir, classes)
	if err != nil && strings.Contains(err.Error(), "no head for classes") {
		return nil
	}
	if err != nil || c.Model().Config().Inputs > 0 {
		return err
	}
	m := c.Model()
	for i, p := range m.Params().All() {
		for j := range p.Data {
			p.Data[j] += float32(rng.New(5).Fold(uint64(i)).Normal(uint64(j))) / 64
		}
	}
	if err := CopyDescription(filepath.Join(to, "description"), dir, classes); err != nil {
		return err
	}
	if err := WriteLike(filepath.Join(to, "after"), filepath.Join(to, "description"), m); err != nil {
		return err
	}
	const n = 12
	ids := make([]int32, n)
	for i := range ids {
		ids[i] = int32(5 + i*7%30)
	}
	logits := make([]float32, len(classes))
	if err := m.Logits(t.Context(), &model.Batch{B: 1, N: n, Tokens: ids}, logits); err != nil {
		return err
	}
	x, err := array.New("input_ids", ids, 1, n)
	if err != nil {
		return err
	}
	y, err := array.New("logits", logits, 1, len(classes))
	if err != nil {
		return err
	}
	return atomicfile.Write(filepath.Join(to, "expected.npz"), func(w io.Writer) error { return array.WriteNPZ(w, []*array.Array{x, y}) })
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
