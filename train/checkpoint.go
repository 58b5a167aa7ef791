package train

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

	"github.com/farfield-ml/farfield/comm"
	"github.com/farfield-ml/farfield/internal/atomicfile"
	"github.com/farfield-ml/farfield/internal/fault"
	"github.com/farfield-ml/farfield/internal/infile"
	"github.com/farfield-ml/farfield/internal/lock"
	"github.com/farfield-ml/farfield/internal/token"
	"github.com/farfield-ml/farfield/model"
	"github.com/farfield-ml/farfield/param"
)

// Names in a run folder and in a checkpoint; the model names its own files.
const (
	configFile        = "config.json"
	metricsFile       = "metrics.jsonl"
	classesFile       = "classes.txt"
	columnsFile       = "columns.txt"
	scalesFile        = "scales.json"
	eventsFile        = "events.out.tfevents.0.farfield" // TensorBoard finds it by tfevents
	checkpointsFolder = "ckpt"
	latestFile        = "latest"
	bestName          = "best"
	manifestFile      = "checkpoint.json"
	vocabFile         = "vocab.json"
	optimFile         = "optim.safetensors"

	stepPrefix = "step-"
	tempPrefix = "."
	oldPrefix  = ".old-" // of a folder until its replacement has its name
)

const (
	checkpointFormat  = "farfield checkpoint"
	checkpointVersion = 2
)

// manifest is the content of checkpoint.json.
type manifest struct {
	Format  string             `json:"format"`
	Version int                `json:"version"`
	Step    int                `json:"step"`          // updates made
	Elapsed float64            `json:"elapsed_s"`     // seconds of training until then
	Metrics int64              `json:"metrics_bytes"` // length of metrics.jsonl then
	Events  int64              `json:"events_bytes"`  // length of TensorBoard's file then
	Best    *bestEval          `json:"best,omitempty"`
	Data    string             `json:"data_sha256"` // task.Digest
	Files   map[string]fileSum `json:"files"`
	Sum     string             `json:"sha256"` // of this text with an empty sum
}

// bestEval is the evaluation with the best validation score.
type bestEval struct {
	Step       int     `json:"step"`
	Value      float64 `json:"score"`
	Loss       float64 `json:"loss"`
	EvalsSince int     `json:"looks_since"`
}

// fileSum is the size and checksum of a file in a checkpoint.
type fileSum struct {
	Bytes int64  `json:"bytes"`
	Sum   string `json:"sha256"`
}

// checksum returns the SHA-256 of the manifest with an empty Sum.
func (m manifest) checksum() (string, error) {
	m.Sum = ""
	text, err := json.Marshal(m)
	if err != nil {
		return "", err
	}
	s := sha256.Sum256(text)
	return hex.EncodeToString(s[:]), nil
}

// hashFile returns the size and SHA-256 of a file.
func hashFile(path string) (fileSum, error) {
	f, err := infile.Open(path)
	if err != nil {
		return fileSum{}, err
	}
	defer f.Close()
	h := sha256.New()
	n, err := io.Copy(h, f)
	return fileSum{n, hex.EncodeToString(h.Sum(nil))}, err
}

// hashMember is hashFile for a file that a manifest names. A manifest is untrusted, so
// the name must be a regular file in the folder dir. The file is not hashed if its size
// is not bytes.
func hashMember(dir, name string, bytes int64) (fileSum, error) {
	path := filepath.Join(dir, name)
	if name != filepath.Base(name) || !filepath.IsLocal(name) {
		return fileSum{}, fmt.Errorf("%s: names %q, which is no file of the folder", filepath.Join(dir, manifestFile), name)
	}
	info, err := os.Stat(path)
	switch {
	case err != nil:
		return fileSum{}, err
	case !info.Mode().IsRegular():
		return fileSum{}, fmt.Errorf("%s: is no regular file", path)
	case info.Size() != bytes:
		return fileSum{Bytes: info.Size()}, nil
	}
	return hashFile(path)
}

// writeCheckpoint makes the checkpoint of m.Step in the run folder dir from the files
// that fill writes. The checkpoint appears complete or not at all, and only then does
// latest name it. The checkpoint before it is kept, older ones are removed.
func writeCheckpoint(dir string, m manifest, fill func(dir string) error) (path string, err error) {
	all := filepath.Join(dir, checkpointsFolder)
	name := fmt.Sprintf("%s%08d", stepPrefix, m.Step)
	if path, err = writeCheckpointFolder(all, name, m, fill); err != nil {
		return "", err
	}
	err = atomicfile.Write(filepath.Join(all, latestFile), func(w io.Writer) error {
		_, err := fmt.Fprintln(w, name)
		return err
	})
	if err != nil {
		return "", err
	}
	keep := map[string]bool{name: true}
	if before, ok := checkpointBefore(all, name); ok {
		keep[before] = true
	}
	return path, removeCheckpoints(all, func(name string) bool { return isStepName(name) && !keep[name] })
}

// removeOlder removes the checkpoints before the predecessor of the checkpoint in path.
// They remain if a run is killed between writing a checkpoint and removing old ones.
func removeOlder(path string) error {
	all, name := filepath.Dir(path), filepath.Base(path)
	before, ok := checkpointBefore(all, name)
	if !ok {
		return nil
	}
	return removeCheckpoints(all, func(name string) bool { return isStepName(name) && name < before })
}

// writeCheckpointFolder makes the folder name in the folder all, complete or not at all.
func writeCheckpointFolder(all, name string, m manifest, fill func(dir string) error) (path string, err error) {
	if err := atomicfile.MakeFolder(all); err != nil {
		return "", err
	}
	if err := removeTemps(all); err != nil {
		return "", err
	}
	temp := filepath.Join(all, tempPrefix+name)
	if err := os.Mkdir(temp, 0o777); err != nil {
		return "", lock.WrapWriteError(temp, err)
	}
	// After the rename temp does not exist.
	defer os.RemoveAll(temp)
	if err := fill(temp); err != nil {
		return "", err
	}
	if err := m.writeInto(temp); err != nil {
		return "", err
	}
	path = filepath.Join(all, name)
	// A best checkpoint replaces another one. A run that resumed an earlier checkpoint
	// writes later ones over the old.
	old := filepath.Join(all, oldPrefix+name)
	if err := atomicfile.Rename(path, old); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", lock.WrapWriteError(path, err)
	}
	if err := atomicfile.Rename(temp, path); err != nil {
		return "", lock.WrapWriteError(path, err)
	}
	atomicfile.SyncFolder(all) // before latest names it, and before the old one goes
	return path, atomicfile.RemoveAll(old)
}

// removeTemps removes the temporary entries of the folder all. An old checkpoint whose
// replacement has no name yet gets its name back.
func removeTemps(all string) error {
	olds, err := fs.Glob(os.DirFS(all), oldPrefix+"*") // all may have brackets
	if err != nil {
		return err
	}
	for _, old := range olds {
		path := filepath.Join(all, strings.TrimPrefix(old, oldPrefix))
		if isCheckpoint(path) {
			continue
		}
		if err := atomicfile.Rename(filepath.Join(all, old), path); err != nil {
			return lock.WrapWriteError(path, err)
		}
	}
	return removeCheckpoints(all, func(name string) bool { return strings.HasPrefix(name, tempPrefix) })
}

// writeInto adds the files of dir to m and writes m into dir.
func (m manifest) writeInto(dir string) error {
	m.Format, m.Version, m.Files = checkpointFormat, checkpointVersion, map[string]fileSum{}
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
	return atomicfile.WriteJSON(filepath.Join(dir, manifestFile), m)
}

// removeCheckpoints removes the unwanted entries of the folder all. The next call removes files that
// another process still has open on Windows.
func removeCheckpoints(all string, unwanted func(name string) bool) error {
	entries, err := os.ReadDir(all)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if unwanted(e.Name()) {
			if err := atomicfile.RemoveAll(filepath.Join(all, e.Name())); err != nil {
				return err
			}
		}
	}
	return nil
}

// isStepName reports whether name is the name of a checkpoint of an update. Copies with
// other names are the user's.
func isStepName(name string) bool {
	digits, ok := strings.CutPrefix(name, stepPrefix)
	_, err := strconv.ParseUint(digits, 10, 63)
	return ok && err == nil
}

// checkpointBefore returns the name of the last checkpoint before name, if there is one.
func checkpointBefore(all, name string) (string, bool) {
	entries, err := os.ReadDir(all) // in the order of their names
	if err != nil {
		return "", false
	}
	before := ""
	for _, e := range entries {
		if isStepName(e.Name()) && e.Name() < name {
			before = e.Name()
		}
	}
	return before, before != ""
}

// ErrNoCheckpoint is returned for a run without a checkpoint.
var ErrNoCheckpoint = errors.New("the run has no checkpoint yet")

// maxPointerBytes bounds the file latest.
const maxPointerBytes = 64

// latestCheckpoint returns the path of the checkpoint that Resume reads.
func latestCheckpoint(dir string) (path string, err error) {
	pointer := filepath.Join(dir, checkpointsFolder, latestFile)
	text, err := infile.ReadBounded(pointer, maxPointerBytes)
	if errors.Is(err, fs.ErrNotExist) {
		return "", fmt.Errorf("%s: %w", dir, ErrNoCheckpoint)
	}
	if err != nil {
		return "", err
	}
	name := strings.TrimSpace(string(text))
	if !isStepName(name) {
		return "", fmt.Errorf("%s: names %q, which is no checkpoint", pointer, name)
	}
	return filepath.Join(dir, checkpointsFolder, name), nil
}

// readManifest reads the manifest of the checkpoint in path and verifies every file. It
// returns an error that names an earlier checkpoint if a file is damaged.
func readManifest(path string) (manifest, error) {
	m, err := checkManifest(path)
	if err == nil {
		return m, nil
	}
	if before, ok := checkpointBefore(filepath.Dir(path), filepath.Base(path)); ok {
		err = fmt.Errorf("%w; to go back, write %s into %s", err, before, filepath.Join(filepath.Dir(path), latestFile))
	}
	return m, err
}

// parseManifest reads the manifest of the checkpoint in path. It returns an error if the
// manifest is damaged.
func parseManifest(path string) (m manifest, err error) {
	name := filepath.Join(path, manifestFile)
	text, err := infile.ReadFile(name)
	if err != nil {
		return m, err
	}
	if err := json.Unmarshal(text, &m); err != nil {
		return m, fault.Mark(fault.ErrDamaged, fmt.Errorf("%s: damaged: %w", name, err))
	}
	if m.Format != checkpointFormat {
		return m, fmt.Errorf("%s: format is %q, not %q", name, m.Format, checkpointFormat)
	}
	if m.Version != checkpointVersion {
		return m, fmt.Errorf("%s: version is %d, this program reads %d", name, m.Version, checkpointVersion)
	}
	sum, err := m.checksum()
	if err == nil && m.Sum != sum {
		err = fault.Mark(fault.ErrDamaged, fmt.Errorf("%s: damaged: its SHA-256 is %.12s…, it says %.12s…", name, sum, m.Sum))
	}
	return m, err
}

// checkManifest is readManifest without the advice in the error.
func checkManifest(path string) (m manifest, err error) {
	if m, err = parseManifest(path); err != nil {
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

// modelTensors returns the weights and the constants of a model.
func modelTensors(m *model.Model) []*param.Param {
	return slices.Concat(m.Params().All(), m.Constants().All())
}

// writeModel writes the model, its vocabulary, if it has one, and the run's copies.
func (t *Trainer) writeModel(dir string) error {
	if err := t.model.Save(dir); err != nil {
		return err
	}
	if err := t.writeCopies(dir); err != nil {
		return err
	}
	if t.text != nil {
		return t.text.Vocab.Save(filepath.Join(dir, vocabFile))
	}
	if t.ofBytes {
		return token.NewByteVocabulary().Save(filepath.Join(dir, vocabFile))
	}
	return saveTokens(dir, t.config.tokens)
}

// saveCheckpoint writes a checkpoint, and then the best one if it is due, unless the last
// one is of this update. The ranks first agree on the weights. In this order a best
// checkpoint that no other one knows does not exist.
func (t *Trainer) saveCheckpoint(o Observer) error {
	if t.dir == "" || t.savedStep == t.step {
		return nil
	}
	if err := t.agreeOnWeights(); err != nil {
		return err
	}
	path, err := t.writeCheckpoint()
	if err = comm.ShareError(t.job.Ranks, err); err != nil {
		return err
	}
	t.savedStep = t.step
	if o.Save != nil && t.isWriter() {
		o.Save(path)
	}
	return nil
}

// writeCheckpoint writes a checkpoint and returns its folder; "" on ranks that write
// none.
func (t *Trainer) writeCheckpoint() (path string, err error) {
	if !t.isWriter() {
		return "", nil
	}
	rows, events, err := t.metrics.syncFiles()
	if err != nil {
		return "", err
	}
	m := manifest{Step: t.step, Elapsed: t.elapsed.Seconds(), Metrics: rows, Events: events, Best: t.best, Data: t.digest}
	path, err = writeCheckpoint(t.dir, m, func(dir string) error {
		if err := t.writeModel(dir); err != nil {
			return err
		}
		if err := t.adapters.save(dir); err != nil {
			return err
		}
		return writeOptim(filepath.Join(dir, optimFile), t.trained, t.optim)
	})
	if err == nil && t.best.isAt(t.step) {
		err = t.writeBest()
	}
	return path, err
}
