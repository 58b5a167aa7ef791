package train

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/farfield-ml/farfield/internal/atomicfile"
	"github.com/farfield-ml/farfield/internal/checkpoint"
	"github.com/farfield-ml/farfield/internal/infile"
	"github.com/farfield-ml/farfield/internal/strict"
	"github.com/farfield-ml/farfield/internal/task"
	"github.com/farfield-ml/farfield/internal/token"
	"github.com/farfield-ml/farfield/train/data"
)

// runFile is the copy of the run's configuration in a checkpoint. Copies of classesFile,
// columnsFile, scalesFile and tokenizerFile lie beside it.
const runFile = "run.json"

// writeCopies writes the files of the run that decide answers to a checkpoint.
func (t *Trainer) writeCopies(dir string) error {
	if err := atomicfile.WriteJSON(filepath.Join(dir, runFile), t.recorded); err != nil {
		return err
	}
	return t.writeLabels(dir)
}

// checkRun returns an error if a file of the run differs from its copy in the
// checkpoint. Older checkpoints have no copies. A checkpoint outside of a run is a model
// by itself.
func checkRun(run, checkpoint string) error {
	if _, err := os.Stat(filepath.Join(run, configFile)); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err := checkConfig(run, checkpoint); err != nil {
		return err
	}
	if err := checkNames(run, checkpoint, classesFile, "class", readClasses); err != nil {
		return err
	}
	if err := checkNames(run, checkpoint, columnsFile, "column", readColumns); err != nil {
		return err
	}
	if err := checkTokenizer(run, checkpoint); err != nil {
		return err
	}
	scales, err := readScales(checkpoint)
	if scales == nil || err != nil {
		return err
	}
	path := filepath.Join(run, scalesFile)
	got, err := readScales(run)
	if err == nil && got == nil {
		err = missingFile(path, checkpoint)
	}
	if err != nil {
		return err
	}
	return compareFields(path, checkpoint, got, scales)
}

// missingFile returns the error for a file of the run that only the checkpoint has.
func missingFile(path, checkpoint string) error {
	return fmt.Errorf("%s: is missing; a copy of it is in %s", path, checkpoint)
}

// checkNames is checkRun for a file of names, which read reads from the run. one is what a
// name names.
func checkNames(run, checkpoint, file, one string, read func(dir string, n int) ([]string, error)) error {
	names, err := readNames(filepath.Join(checkpoint, file), -1, "")
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	path := filepath.Join(run, file)
	got, err := read(run, len(names))
	if err != nil {
		return err
	}
	if len(got) != len(names) {
		return missingFile(path, checkpoint)
	}
	for i, name := range names {
		if got[i] != name {
			return fmt.Errorf("%s: %s %d is %q, in %s it is %q", path, one, i, got[i], checkpoint, name)
		}
	}
	return nil
}

// checkTokenizer is checkRun for the tokenizer, or the vocabulary of bytes or characters in its
// place.
func checkTokenizer(run, checkpoint string) error {
	err := checkFile(run, checkpoint, tokenizerFile)
	if _, missing := os.Stat(filepath.Join(checkpoint, tokenizerFile)); err != nil || missing == nil {
		return err
	}
	// Nothing reads another run's vocabulary, and a model may have none.
	if c, err := decodeConfig(filepath.Join(run, configFile)); err != nil || !c.keepsTokens() {
		return err
	}
	if _, err := os.Stat(filepath.Join(run, tokenizerFile)); err == nil {
		return checkTextTokenizer(run, checkpoint)
	}
	if _, err := os.Stat(filepath.Join(run, vocabFile)); err != nil {
		return nil
	}
	return checkFile(run, checkpoint, vocabFile)
}

// checkTextTokenizer is checkTokenizer for a checkpoint of a text, whose vocabulary holds the
// tokenizer with other spaces and escapes.
func checkTextTokenizer(run, checkpoint string) error {
	path, from := filepath.Join(run, tokenizerFile), filepath.Join(checkpoint, vocabFile)
	vocab, err := token.LoadVocabulary(from)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	text, err := infile.ReadFile(path)
	if err != nil {
		return err
	}
	if words := vocab.Tokenizer(); words != nil {
		got, err := json.Marshal(json.RawMessage(text))
		want, _ := json.Marshal(json.RawMessage(words.JSON()))
		if err == nil && bytes.Equal(got, want) {
			return nil
		}
	}
	return fmt.Errorf("%s: is not the tokenizer in %s", path, from)
}

// checkFile is checkRun for a file that is compared byte by byte.
func checkFile(run, checkpoint, name string) error {
	want, err := infile.ReadFile(filepath.Join(checkpoint, name))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	path := filepath.Join(run, name)
	got, err := infile.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return missingFile(path, checkpoint)
	}
	if err == nil && !bytes.Equal(got, want) {
		err = fmt.Errorf("%s: its SHA-256 is %.6x…, in %s it is %.6x…", path, sha256.Sum256(got), checkpoint, sha256.Sum256(want))
	}
	return err
}

// checkConfig is checkRun for the configuration. Updates, and places of files, may differ.
func checkConfig(run, checkpoint string) error {
	want, err := decodeConfig(filepath.Join(checkpoint, runFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	path := filepath.Join(run, configFile)
	got, err := decodeConfig(path)
	if err != nil {
		return err
	}
	for _, c := range []*Config{&got, &want} {
		c.Steps, c.Lengthened, c.Folder, c.Init = 0, nil, "", ""
		delete(c.TaskSet, "data")
	}
	return compareFields(path, checkpoint, got, want)
}

// decodeConfig is ReadConfig without the tokens.
func decodeConfig(path string) (c Config, err error) {
	text, err := infile.ReadFile(path)
	if err != nil {
		return c, err
	}
	if err := strict.Unmarshal(text, &c); err != nil {
		return c, fmt.Errorf("%s: %w", path, err)
	}
	return c, nil
}

// compareFields returns an error that names the first field of the file path that
// differs from the checkpoint's copy, and both values.
func compareFields(path, checkpoint string, got, want any) error {
	a, b := map[string]string{}, map[string]string{}
	if err := errors.Join(flattenJSON(a, got), flattenJSON(b, want)); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	names := maps.Clone(a)
	maps.Copy(names, b)
	for _, name := range slices.Sorted(maps.Keys(names)) {
		if a[name] != b[name] {
			return fmt.Errorf("%s: %s is %s, in %s it is %s", path, name, cmp.Or(a[name], "absent"), checkpoint, cmp.Or(b[name], "absent"))
		}
	}
	return nil
}

// flattenJSON adds the fields of v's JSON to the map, such as model.width or mean[0].
func flattenJSON(into map[string]string, v any) error {
	text, err := atomicfile.MarshalJSON(v)
	if err != nil {
		return err
	}
	var tree any
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	if err := d.Decode(&tree); err != nil {
		return err
	}
	var add func(name string, x any)
	add = func(name string, x any) {
		switch x := x.(type) {
		case map[string]any:
			for key, y := range x {
				add(name+"."+key, y)
			}
		case []any:
			for i, y := range x {
				add(fmt.Sprintf("%s[%d]", name, i), y)
			}
		default:
			value, _ := atomicfile.MarshalJSON(x) // a part of JSON
			into[strings.TrimPrefix(name, ".")] = string(value)
		}
	}
	add("", tree)
	return nil
}

// startFile binds a run to its data and first weights until a checkpoint does.
const (
	startFile     = "start.json"
	maxStartBytes = 1 << 12
)

// runStart is the content of startFile.
type runStart struct {
	Version int    `json:"version"`
	Data    string `json:"data_sha256"`              // task.Digest
	Weights string `json:"weights_sha256,omitempty"` // of a run that starts from a model
}

// describeRunStart returns the content of startFile for this start.
func (t *Trainer) describeRunStart() runStart {
	s := runStart{Version: 1, Data: t.digest}
	if t.config.Init == "" {
		return s // the seed decides the weights
	}
	sum := sha256.New()
	b := make([]byte, 0, 1<<16)
	for _, p := range t.stateTensors() {
		for part := range slices.Chunk(p.Data, cap(b)/4) {
			b = b[:0]
			for _, x := range part {
				b = binary.LittleEndian.AppendUint32(b, math.Float32bits(x))
			}
			sum.Write(b)
		}
	}
	s.Weights = hex.EncodeToString(sum.Sum(nil))
	return s
}

// checkStart returns an error if the run began with other data or weights. Older runs
// have no startFile.
func (t *Trainer) checkStart() error {
	path := filepath.Join(t.dir, startFile)
	var was runStart
	err := infile.ReadJSON(path, maxStartBytes, &was)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	is := t.describeRunStart()
	switch {
	case was.Version != is.Version:
		return fmt.Errorf("%s: version is %d, this program reads %d", path, was.Version, is.Version)
	case was.Weights != is.Weights:
		return fieldErrorf("{Init}: %s: is not the model that the run began with: its SHA-256 is %.12s…, was %.12s…", t.config.Init, is.Weights, was.Weights)
	}
	return t.checkData(was.Data)
}

// checkData returns an error if the SHA-256 of the data is another.
func (t *Trainer) checkData(was string) error {
	return checkDigest(&t.config, t.source, t.digest, was)
}

// checkDigest returns an error if the SHA-256 of the data src is another than it was. Runs of
// earlier versions have one of some samples, which is compared as it was.
func checkDigest(c *Config, src data.Source, digest, was string) error {
	digest, err := task.DigestLike(was, src, digest)
	if err != nil {
		return err
	}
	if was == digest {
		return nil
	}
	what := "task " + c.Task
	if text, ok := src.(*task.Text); ok {
		what = text.Corpus.Name
	}
	return fmt.Errorf("%s: %w: its SHA-256 is %.12s…, was %.12s…", what, ErrDataChanged, digest, was)
}

// sumsFile keeps the SHA-256 of files of samples, so that a run which is resumed does not read files
// again that have not changed.
const (
	sumsFile     = "data-sums.json"
	sumsVersion  = 1
	maxSumsBytes = 1 << 30
)

// readFileSums returns the sums in the folder of a run. A file that is missing, damaged or of another
// version counts as empty: what it lacks is read anew.
func readFileSums(dir string) *task.FileSums {
	sums := &task.FileSums{}
	if dir == "" || infile.ReadJSON(filepath.Join(dir, sumsFile), maxSumsBytes, sums) != nil || sums.Version != sumsVersion {
		sums = &task.FileSums{Version: sumsVersion}
	}
	return sums
}

// writeFileSums writes sums that are new.
func (t *Trainer) writeFileSums() error {
	if !t.sums.HasChanged() {
		return nil
	}
	return atomicfile.WriteJSON(filepath.Join(t.dir, sumsFile), t.sums)
}

// renewStart replaces the checksum of some samples, with which earlier versions began a run, by that
// of all.
func (t *Trainer) renewStart() error {
	path := filepath.Join(t.dir, startFile)
	var was runStart
	err := infile.ReadJSON(path, maxStartBytes, &was)
	if errors.Is(err, fs.ErrNotExist) || err == nil && was.Data == t.digest {
		return nil
	}
	if err != nil {
		return err
	}
	was.Data = t.digest
	return atomicfile.WriteJSON(path, was)
}

// DataSum returns the SHA-256 of the data with which the run in the folder dir began, as
// task.Digest computes it. It returns "" if the folder has no record of it, and an error if the
// record is damaged.
func DataSum(dir string) (string, error) {
	var start runStart
	err := infile.ReadJSON(filepath.Join(dir, startFile), maxStartBytes, &start)
	if !errors.Is(err, fs.ErrNotExist) {
		return start.Data, err
	}
	latest, err := latestCheckpoint(dir) // older runs have no startFile
	if errors.Is(err, ErrNoCheckpoint) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	m, err := checkpoint.Parse(latest)
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	return m.Data, err
}
