package train

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/farfield-ml/farfield/internal/checkpoint"
	"github.com/farfield-ml/farfield/internal/fault"
	"github.com/farfield-ml/farfield/internal/token"
	"github.com/farfield-ml/farfield/model"
	"github.com/farfield-ml/farfield/rng"
)

// A model that was saved is read again to the same weights, with its vocabulary if it
// has one, and a folder that holds something stays as it is.
func TestSavedModelLoadsToTheSameWeights(t *testing.T) {
	t.Parallel()
	m, err := model.New(model.Config{
		Kind: model.Decoder, Vocab: 256, Layers: 1, Heads: 2, Width: 8, Context: 8,
		Positions: model.Rotary, Mechanism: "softmax",
	}, rng.New(1))
	if err != nil {
		t.Fatal(err)
	}
	chars, err := token.NewCharVocabulary([]byte("abc"))
	if err != nil {
		t.Fatal(err)
	}
	root := t.TempDir()
	for _, c := range []struct {
		name  string
		vocab *token.Vocabulary
		load  string // the error of loadModel; "": there is none
	}{
		{"text", token.NewByteVocabulary(), ""},
		{"other", nil, ""},
		{"mixed up", chars, "DIR/vocab.json: has 3 tokens, the model 256"},
	} {
		dir := filepath.Join(root, c.name)
		if err := checkpoint.SaveModel(dir, m, c.vocab); err != nil {
			t.Fatal(err)
		}
		files := names(t, dir)
		got, vocab, err := loadModel(dir)
		if want := strings.ReplaceAll(c.load, "DIR", dir); want != "" {
			if err == nil || err.Error() != want {
				t.Errorf("%s: error is %v, want %s", c.name, err, want)
			}
		} else if err != nil || (vocab == nil) != (c.vocab == nil) || vocab != nil && vocab.Size() != 256 {
			t.Errorf("%s: %v, a vocabulary %v", c.name, err, vocab)
		} else {
			for i, p := range m.Params().All() {
				if !slices.Equal(got.Params().All()[i].Data, p.Data) {
					t.Errorf("%s: %s has other weights", c.name, p.Name)
				}
			}
		}
		if err := checkpoint.SaveModel(dir, m, c.vocab); err == nil || err.Error() != dir+": is not empty" {
			t.Errorf("%s: saved twice: %v", c.name, err)
		}
		if now := names(t, dir); !slices.Equal(now, files) {
			t.Errorf("%s: the folder has %v, had %v", c.name, now, files)
		}
	}
	path := filepath.Join(root, "text", vocabFile)
	in := filepath.Join(path, "model")
	if err := checkpoint.SaveModel(in, m, nil); err == nil || !strings.Contains(err.Error(), "not a folder") {
		t.Errorf("in a file: %v", err)
	}
	if err := os.Truncate(path, 10); err != nil {
		t.Fatal(err)
	}
	if _, _, err := loadModel(filepath.Join(root, "text")); err == nil || !strings.Contains(err.Error(), path+": damaged: it has 10 bytes") {
		t.Errorf("half a vocabulary: %v", err)
	}
}

// The moments of an optimiser file must exist for every weight, in its shape.
func TestMomentsFitTheirWeights(t *testing.T) {
	t.Parallel()
	trainer := func(width int) *Trainer {
		c := little("softmax")
		c.Model.Width, c.Model.Heads = width, 2
		tr, err := New(c, littleText(t), "")
		if err != nil {
			t.Fatal(err)
		}
		return tr
	}
	a, b, wide := trainer(8), trainer(8), trainer(12)
	for i, m := range a.optim.Moments() {
		for j := range m.M {
			m.M[j], m.V[j] = float32(i+1), float32(j)
		}
	}
	path := filepath.Join(t.TempDir(), optimFile)
	if err := writeOptim(path, a.model.Params(), a.optim); err != nil {
		t.Fatal(err)
	}
	if err := readOptim(path, b.model.Params(), b.optim, 7); err != nil {
		t.Fatal(err)
	}
	for i, m := range b.optim.Moments() {
		if want := a.optim.Moments()[i]; !slices.Equal(m.M, want.M) || !slices.Equal(m.V, want.V) {
			t.Errorf("moments %d are others", i)
		}
	}
	first := a.model.Params().All()[0]
	err := readOptim(path, wide.model.Params(), wide.optim, 7)
	if err == nil || !strings.Contains(err.Error(), path+": m."+first.Name+": shape is [256 8], the weight's is [256 12]") {
		t.Errorf("of a model of another width: %v", err)
	}
	if err := readOptim(filepath.Join(t.TempDir(), "none"), b.model.Params(), b.optim, 7); !os.IsNotExist(err) {
		t.Errorf("no file: %v", err)
	}
}

func TestByteModelsHaveTheVocabularyOfBytes(t *testing.T) {
	t.Parallel()
	c := model.Config{Kind: model.Decoder, Vocab: 256, Layers: 1, Heads: 2, Width: 8, Context: 8, Positions: model.Rotary, Mechanism: "softmax"}
	for vocab, want := range map[int]string{256: "", 255: "DIR: the model has 255 tokens, there are 256 bytes"} {
		c.Vocab = vocab
		m, err := model.New(c, rng.New(1))
		if err != nil {
			t.Fatal(err)
		}
		dir := filepath.Join(t.TempDir(), "saved")
		err = SaveByteModel(dir, m)
		if want != "" {
			if err == nil || err.Error() != strings.Replace(want, "DIR", dir, 1) {
				t.Errorf("%d tokens: error %v", vocab, err)
			}
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		if _, words, err := loadModel(dir); err != nil || words.Size() != 256 {
			t.Errorf("%v, %v", words, err)
		}
	}
}

// ofBytes is data whose tokens are bytes.
type ofBytes struct{ *made }

func (ofBytes) TokensAreBytes() bool { return true }

// A run on data of one's own that is bytes keeps their vocabulary, also after it was interrupted.
func TestRunsOnBytesHaveTheirVocabulary(t *testing.T) {
	t.Parallel()
	src := ofBytes{kinds()["next"]}
	if _, err := New(littleTask(src, "softmax"), src, ""); err == nil || fault.InFile(err).Error() != "task next: vocab is 7, but its tokens are bytes, which are 256" {
		t.Errorf("error %v", err)
	}
	src.spec.Vocab, src.spec.Classes = 256, 256
	dir, _ := taskRun(t, littleTask(src, "softmax"), src, 3, 20)
	for _, path := range []string{dir, filepath.Join(dir, checkpointsFolder, bestName)} {
		if _, words, err := loadModel(path); err != nil || words.Size() != 256 {
			t.Errorf("%s: %v, %v", path, words, err)
		}
	}
}
