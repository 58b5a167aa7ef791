package inference

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/farfield-ml/farfield/internal/infile"
	"github.com/farfield-ml/farfield/train"
)

// HashFiles returns the SHA-256 of the model's files in hexadecimal digits: of the weights,
// configuration and classes of a run, or of the files of a published folder. It returns an error if
// a file cannot be read.
func (m *Model) HashFiles() (string, error) {
	h := sha256.New()
	add := m.hashRun
	if m.folder != nil {
		add = m.hashFolder
	}
	if err := add(h); err != nil {
		return "", err
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}

// hashFolder adds the files that a published model consists of, in the order of their names.
func (m *Model) hashFolder(h hash.Hash) error {
	root := filepath.Clean(m.path) // with /. after it a link to a folder is followed
	return filepath.WalkDir(root+"/.", func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && d.Name() != "." && strings.HasPrefix(d.Name(), ".") {
			return filepath.SkipDir
		}
		switch filepath.Ext(path) {
		case ".safetensors", ".json", ".model", ".jinja":
		default:
			if d.Name() != "vocab.txt" && d.Name() != "merges.txt" {
				return nil
			}
		}
		if info, err := os.Stat(path); err != nil || !info.Mode().IsRegular() {
			return err
		}
		f, err := infile.Open(path)
		if err != nil {
			return err
		}
		defer f.Close()
		info, err := f.Stat()
		if err != nil {
			return err
		}
		name, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		fmt.Fprintf(h, "%q %d\n", filepath.ToSlash(name), info.Size())
		_, err = io.Copy(h, f)
		return err
	})
}

// hashRun adds the weights, configuration, tokens and classes of a run or checkpoint.
func (m *Model) hashRun(h hash.Hash) error {
	classes, err := infile.ReadFile(filepath.Join(train.RunFolder(m.path), "classes.txt"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if m.calibration != nil { // codebooks are no weights
		for _, p := range m.body.Constants().All() {
			if err := json.NewEncoder(h).Encode([]any{p.Name, p.Data}); err != nil {
				return err
			}
		}
	}
	return json.NewEncoder(h).Encode([]any{m.stored, m.body.WeightSum(), m.vocab, classes})
}
