// Package checkpoint reads and writes the folders of checkpoints: a model, the vocabulary of its
// text, and a manifest with the checksum of every file. Package train has the rest of a checkpoint
// and its place in a run.
package checkpoint

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/farfield-ml/farfield/internal/atomicfile"
	"github.com/farfield-ml/farfield/internal/fault"
	"github.com/farfield-ml/farfield/internal/infile"
)

// Names of files in a checkpoint; the model names its own files.
const (
	ManifestFile = "checkpoint.json"
	VocabFile    = "vocab.json"
)

// LatestFile names the latest checkpoint of the folder in which it is.
const LatestFile = "latest"

// The format of a manifest.
const (
	Format  = "farfield checkpoint"
	Version = 2
)

// stepPrefix begins the name of the checkpoint of an update.
const stepPrefix = "step-"

// Manifest is the content of ManifestFile.
type Manifest struct {
	Format  string             `json:"format"`
	Version int                `json:"version"`
	Step    int                `json:"step"`          // updates made
	Elapsed float64            `json:"elapsed_s"`     // seconds of training until then
	Metrics int64              `json:"metrics_bytes"` // length of metrics.jsonl then
	Events  int64              `json:"events_bytes"`  // length of TensorBoard's file then
	Best    *Best              `json:"best,omitempty"`
	Data    string             `json:"data_sha256"` // task.Digest
	Files   map[string]FileSum `json:"files"`
	Sum     string             `json:"sha256"` // of this text with an empty sum
}

// Best is the evaluation with the best validation score.
type Best struct {
	Step       int     `json:"step"`
	Value      float64 `json:"score"`
	Loss       float64 `json:"loss"`
	EvalsSince int     `json:"looks_since"`
}

// IsAt reports whether the best validation score is of an update.
func (b *Best) IsAt(step int) bool { return b != nil && b.Step == step }

// IsExhausted reports whether early stopping ends a run; patience 0: never.
func (b *Best) IsExhausted(patience int) bool {
	return patience > 0 && b != nil && b.EvalsSince >= patience
}

// FileSum is the size and checksum of a file in a checkpoint.
type FileSum struct {
	Bytes int64  `json:"bytes"`
	Sum   string `json:"sha256"`
}

// checksum returns the SHA-256 of the manifest with an empty Sum.
func (m Manifest) checksum() (string, error) {
	m.Sum = ""
	text, err := json.Marshal(m)
	if err != nil {
		return "", err
	}
	s := sha256.Sum256(text)
	return hex.EncodeToString(s[:]), nil
}

// hashFile returns the size and SHA-256 of a file.
func hashFile(path string) (FileSum, error) {
	f, err := infile.Open(path)
	if err != nil {
		return FileSum{}, err
	}
	defer f.Close()
	h := sha256.New()
	n, err := io.Copy(h, f)
	return FileSum{n, hex.EncodeToString(h.Sum(nil))}, err
}

// hashMember is hashFile for a file that a manifest names. A manifest is untrusted, so
// the name must be a regular file in the folder dir. The file is not hashed if its size
// is not bytes.
func hashMember(dir, name string, bytes int64) (FileSum, error) {
	path := filepath.Join(dir, name)
	if name != filepath.Base(name) || !filepath.IsLocal(name) {
		return FileSum{}, fmt.Errorf("%s: names %q, which is no file of the folder", filepath.Join(dir, ManifestFile), name)
	}
	info, err := os.Stat(path)
	switch {
	case err != nil:
		return FileSum{}, err
	case !info.Mode().IsRegular():
		return FileSum{}, fmt.Errorf("%s: is no regular file", path)
	case info.Size() != bytes:
		return FileSum{Bytes: info.Size()}, nil
	}
	return hashFile(path)
}

// WriteInto adds the files of dir to m and writes m into dir.
func (m Manifest) WriteInto(dir string) error {
	m.Format, m.Version, m.Files = Format, Version, map[string]FileSum{}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if m.Files[e.Name()], err = hashFile(filepath.Join(dir, e.Name())); err != nil {
			return err
		}
	}
	if m.Sum, err = m.checksum(); err != nil {
		return err
	}
	return atomicfile.WriteJSON(filepath.Join(dir, ManifestFile), m)
}

// Is reports whether path is a folder with a manifest.
func Is(path string) bool {
	_, err := os.Stat(filepath.Join(path, ManifestFile))
	return !errors.Is(err, fs.ErrNotExist)
}

// StepName returns the name of the checkpoint of an update.
func StepName(step int) string { return fmt.Sprintf("%s%08d", stepPrefix, step) }

// IsStepName reports whether name is the name of a checkpoint of an update. Copies with
// other names are the user's.
func IsStepName(name string) bool {
	digits, ok := strings.CutPrefix(name, stepPrefix)
	_, err := strconv.ParseUint(digits, 10, 63)
	return ok && err == nil
}

// Before returns the name of the last checkpoint before name in the folder all, if there is one.
func Before(all, name string) (string, bool) {
	entries, err := os.ReadDir(all) // in the order of their names
	if err != nil {
		return "", false
	}
	before := ""
	for _, e := range entries {
		if IsStepName(e.Name()) && e.Name() < name {
			before = e.Name()
		}
	}
	return before, before != ""
}

// Read reads the manifest of the checkpoint in path and verifies every file. It
// returns an error that names an earlier checkpoint if a file is damaged.
func Read(path string) (Manifest, error) {
	m, err := Verify(path)
	if err == nil {
		return m, nil
	}
	if before, ok := Before(filepath.Dir(path), filepath.Base(path)); ok {
		err = fmt.Errorf("%w; to go back, write %s into %s", err, before, filepath.Join(filepath.Dir(path), LatestFile))
	}
	return m, err
}

// Parse reads the manifest of the checkpoint in path. It returns an error if the
// manifest is damaged.
func Parse(path string) (m Manifest, err error) {
	name := filepath.Join(path, ManifestFile)
	text, err := infile.ReadFile(name)
	if err != nil {
		return m, err
	}
	if err := json.Unmarshal(text, &m); err != nil {
		return m, fault.Mark(fault.ErrDamaged, fmt.Errorf("%s: damaged: %w", name, err))
	}
	if m.Format != Format {
		return m, fmt.Errorf("%s: format is %q, not %q", name, m.Format, Format)
	}
	if m.Version != Version {
		return m, fmt.Errorf("%s: version is %d, this program reads %d", name, m.Version, Version)
	}
	sum, err := m.checksum()
	if err == nil && m.Sum != sum {
		err = fault.Mark(fault.ErrDamaged, fmt.Errorf("%s: damaged: its SHA-256 is %.12s…, it says %.12s…", name, sum, m.Sum))
	}
	return m, err
}

// Verify is Read without the advice in the error.
func Verify(path string) (m Manifest, err error) {
	if m, err = Parse(path); err != nil {
		return m, err
	}
	for _, n := range slices.Sorted(maps.Keys(m.Files)) {
		want := m.Files[n]
		got, err := hashMember(path, n, want.Bytes)
		switch {
		case err != nil:
			return m, err
		case got.Bytes != want.Bytes:
			return m, fault.Mark(fault.ErrDamaged, fmt.Errorf("%s: damaged: it has %d bytes, was written with %d", filepath.Join(path, n), got.Bytes, want.Bytes))
		case got.Sum != want.Sum:
			return m, fault.Mark(fault.ErrDamaged, fmt.Errorf("%s: damaged: its SHA-256 is %.12s…, was %.12s…", filepath.Join(path, n), got.Sum, want.Sum))
		}
	}
	return m, nil
}
