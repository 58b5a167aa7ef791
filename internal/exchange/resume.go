package exchange

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/farfield-ml/farfield/internal/array"
	"github.com/farfield-ml/farfield/internal/atomicfile"
	"github.com/farfield-ml/farfield/internal/safetensors"
)

const (
	savePeriod    = 10 * time.Second // between two saves of updates
	updatesSuffix = ".safetensors"
)

// updatesFile is the file of the updates of some numbers. Its name is the hash of what they come from, so
// that other updates have other files.
type updatesFile struct {
	path     string // "": nothing is saved
	learners []*learner
	most     int // updates
	saved    time.Time
}

// newUpdatesFile returns the file of updates in a folder, which may be "". The hash is of all that decides
// what the updates lead to: the model, the centres of the cells, the numbers as they are, the windows in
// which they learn, the options and the constants.
func (r *run) newUpdatesFile(learners []*learner, t *training) (*updatesFile, error) {
	f := &updatesFile{learners: learners, most: r.Updates, saved: time.Now()}
	if r.UpdatesFolder == "" {
		return f, nil
	}
	model, err := r.hashModel()
	if err != nil {
		return nil, err
	}
	h := sha256.New()
	h.Write(model)
	fmt.Fprintf(h, "%s of %v in layers %v, %d updates, seed %d\n", t.what, t.choice, r.layers, r.Updates, r.Seed)
	fmt.Fprintf(h, "%d tokens, rate %g after %d\n", updateTokens, updateRate, updateWarmUp)
	for _, ids := range r.calibration {
		fmt.Fprintf(h, "window of %d\n", len(ids))
		binary.Write(h, binary.LittleEndian, ids)
	}
	for _, i := range r.layers {
		hashFloats(h, r.books[t.choice.Cells][i])
	}
	for _, l := range learners {
		fmt.Fprintf(h, "AdamW %g %g %g %g %t\n", l.adam.Beta1, l.adam.Beta2, l.adam.Eps, l.adam.Decay, l.adam.Rectified)
		for _, p := range l.params.All() {
			hashFloats(h, p.Data)
		}
	}
	f.path = filepath.Join(r.UpdatesFolder, hex.EncodeToString(h.Sum(nil))+updatesSuffix)
	return f, nil
}

// hashModel returns the hash of the trained model: its configuration and all its weights. It is computed
// once.
func (r *run) hashModel() ([]byte, error) {
	if r.modelHash != nil {
		return r.modelHash, nil
	}
	config, err := json.Marshal(r.config)
	if err != nil {
		return nil, err
	}
	h := sha256.New()
	fmt.Fprintf(h, "%s\npositions %q\n", config, r.s.Positions)
	for _, p := range r.s.Model.Params().All() {
		fmt.Fprintf(h, "%q %v\n", p.Name, p.Shape)
		hashFloats(h, p.Data)
	}
	r.modelHash = h.Sum(nil)
	return r.modelHash, nil
}

// hashFloats adds the number of elements of x and their bits to h.
func hashFloats(h hash.Hash, x []float32) {
	b := binary.LittleEndian.AppendUint64(make([]byte, 0, 1<<15), uint64(len(x)))
	for _, y := range x {
		if len(b) == cap(b) {
			h.Write(b)
			b = b[:0]
		}
		b = binary.LittleEndian.AppendUint32(b, math.Float32bits(y))
	}
	h.Write(b)
}

// numbers returns the numbers that updates change, and their moments.
func (f *updatesFile) numbers() (list [][]float32) {
	for _, l := range f.learners {
		for i, p := range l.params.All() {
			m := l.adam.Moments()[i]
			list = append(list, p.Data, m.M, m.V)
		}
	}
	return list
}

// load sets the numbers to what the file has, and returns how many updates and windows they come from: 0
// if there is no file. If the file cannot be read or is damaged, it returns an error that names it, and the
// numbers stay.
func (f *updatesFile) load() (updates, drawn int, err error) {
	if f.path == "" {
		return 0, 0, nil
	}
	file, err := safetensors.Open(f.path)
	if errors.Is(err, fs.ErrNotExist) {
		return 0, 0, nil
	}
	if err == nil {
		updates, drawn, err = f.read(file)
		err = errors.Join(err, file.Close())
	}
	if err != nil {
		return 0, 0, fmt.Errorf("%s: saved updates: %w; delete it to begin anew", f.path, err)
	}
	for _, l := range f.learners {
		if err := l.adam.Restore(int64(updates)); err != nil {
			return 0, 0, err
		}
	}
	return updates, drawn, nil
}

// read sets the numbers to those of file, if it is whole.
func (f *updatesFile) read(file *safetensors.File) (updates, drawn int, err error) {
	of := file.Metadata()
	updates, err1 := strconv.Atoi(of["updates"])
	drawn, err2 := strconv.Atoi(of["windows"])
	switch err := errors.Join(err1, err2); {
	case err != nil:
		return 0, 0, fmt.Errorf("has no number of updates: %w", err)
	case updates < 0 || updates > f.most || drawn < 0:
		return 0, 0, fmt.Errorf("has %d updates of %d windows, needs 0 to %d updates", updates, drawn, f.most)
	}
	list := f.numbers()
	read := make([][]float32, len(list))
	for i := range list {
		a, err := file.ReadArray(strconv.Itoa(i))
		if err == nil {
			read[i], err = a.Float32()
		}
		if err == nil && len(read[i]) != len(list[i]) {
			err = fmt.Errorf("array %d has %d numbers, needs %d", i, len(read[i]), len(list[i]))
		}
		if err != nil {
			return 0, 0, err
		}
	}
	if got, want := f.sum(updates, drawn, read), of["sha256"]; got != want {
		return 0, 0, fmt.Errorf("is damaged: the checksum is %.12s…, written as %.12q…", got, want)
	}
	for i := range list {
		copy(list[i], read[i])
	}
	return updates, drawn, nil
}

// sum returns the checksum of numbers after so many updates and windows.
func (f *updatesFile) sum(updates, drawn int, numbers [][]float32) string {
	h := sha256.New()
	fmt.Fprintf(h, "%s %d %d\n", filepath.Base(f.path), updates, drawn)
	for _, x := range numbers {
		hashFloats(h, x)
	}
	return hex.EncodeToString(h.Sum(nil))
}

// save writes the numbers after so many updates and windows.
func (f *updatesFile) save(updates, drawn int) error {
	if f.path == "" {
		return nil
	}
	f.saved = time.Now()
	var list []*array.Array
	numbers := f.numbers()
	for i, x := range numbers {
		a, err := array.New(strconv.Itoa(i), x, len(x))
		if err != nil {
			return err
		}
		list = append(list, a)
	}
	if err := atomicfile.MakeFolder(filepath.Dir(f.path)); err != nil {
		return err
	}
	return atomicfile.Write(f.path, func(w io.Writer) error {
		return safetensors.Write(w, list, map[string]string{"updates": strconv.Itoa(updates), "windows": strconv.Itoa(drawn), "sha256": f.sum(updates, drawn, numbers)})
	})
}

// saveUpdates saves updates. If that fails it tells Options.NotSaved, unless the time before failed too.
func (r *run) saveUpdates(f *updatesFile, updates, drawn int) {
	err := f.save(updates, drawn)
	if err != nil && !r.notSaved && r.NotSaved != nil {
		r.NotSaved(err)
	}
	r.notSaved = err != nil
}

// isUpdates reports whether an entry of a folder has the form of the files that updatesFile saves.
func isUpdates(e fs.DirEntry) bool {
	sum, ends := strings.CutSuffix(e.Name(), updatesSuffix)
	return e.Type().IsRegular() && ends && len(sum) == 2*sha256.Size && strings.Trim(sum, "0123456789abcdef") == ""
}

// CheckUpdatesFolder returns an error if path is neither free nor a folder with nothing but saved updates.
func CheckUpdatesFolder(path string) error {
	info, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if !info.IsDir() {
		return fmt.Errorf("%s: is not a folder of saved updates", path)
	}
	list, err := os.ReadDir(path)
	if err != nil {
		return err
	}
	for _, e := range list {
		if !isUpdates(e) && !(e.Type().IsRegular() && atomicfile.IsTemp(e.Name())) {
			return fmt.Errorf("%s: is not a folder of saved updates alone: it has %s", path, e.Name())
		}
	}
	return nil
}

// RemoveUpdates removes the saved updates of a folder, and the folder if it is then empty. Other files,
// and those of a process that is writing, stay.
func RemoveUpdates(path string) error {
	if info, err := os.Lstat(path); err != nil || !info.IsDir() {
		if errors.Is(err, fs.ErrNotExist) {
			err = nil
		}
		return err
	}
	list, err := os.ReadDir(path)
	if err != nil {
		return err
	}
	for _, e := range list {
		if isUpdates(e) {
			if err := os.Remove(filepath.Join(path, e.Name())); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return err
			}
		}
	}
	atomicfile.RemoveOrphans(path)
	if list, err = os.ReadDir(path); err != nil || len(list) > 0 {
		return err
	}
	return os.Remove(path)
}
