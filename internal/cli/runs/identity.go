package runs

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
	"github.com/farfield-ml/farfield/pretrained"
	"github.com/farfield-ml/farfield/train"
)

// HashModel returns the SHA-256 of the model at path, in hexadecimal digits: of the weights,
// configuration and classes of a run, or of the files of a published folder. It returns
// an error if there is no such model or a file cannot be read.
func HashModel(path string) (string, error) {
	path, err := ResolveModel(path)
	if err != nil {
		return "", err
	}
	h := sha256.New()
	if pretrained.IsFolder(path) {
		err = hashFolder(h, path)
	} else {
		err = hashRun(h, path)
	}
	if err != nil {
		return "", err
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}

// hashFolder adds the files that a published model consists of, in the order of their names.
func hashFolder(h hash.Hash, dir string) error {
	root := filepath.Clean(dir) // with /. behind it a link to a folder is followed
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
func hashRun(h hash.Hash, path string) error {
	m, vocab, err := train.LoadModel(path)
	if err != nil {
		return err
	}
	run := train.RunFolder(path)
	classes, err := infile.ReadFile(filepath.Join(run, "classes.txt"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return json.NewEncoder(h).Encode([]any{m.Config(), m.WeightSum(), vocab, classes})
}
