package exchange

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"strconv"
	"time"

	"github.com/farfield-ml/farfield/internal/array"
	"github.com/farfield-ml/farfield/internal/atomicfile"
	"github.com/farfield-ml/farfield/safetensors"
)

// savePeriod is the time between two saves of updates.
const savePeriod = 10 * time.Second

// updatesFile is the file of the updates of some numbers. Its name is the hash of what they come from, so
// that other updates have other files.
type updatesFile struct {
	path     string // "": nothing is saved
	learners []*learner
	saved    time.Time
}

// newUpdatesFile returns the file of updates in a folder, which may be "". The hash is of the numbers as
// they are, of the windows in which they learn, and of the options.
func (r *run) newUpdatesFile(learners []*learner, what string) *updatesFile {
	f := &updatesFile{learners: learners, saved: time.Now()}
	if r.UpdatesFolder == "" {
		return f
	}
	h := sha256.New()
	fmt.Fprintf(h, "%s, %d updates, seed %d\n", what, r.Updates, r.Seed)
	for _, ids := range r.calibration {
		binary.Write(h, binary.LittleEndian, int64(len(ids)))
		binary.Write(h, binary.LittleEndian, ids)
	}
	for _, l := range learners {
		for _, p := range l.params.All() {
			binary.Write(h, binary.LittleEndian, p.Data)
		}
	}
	f.path = filepath.Join(r.UpdatesFolder, hex.EncodeToString(h.Sum(nil))+".safetensors")
	return f
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
// if there is no file.
func (f *updatesFile) load() (updates, drawn int, err error) {
	if f.path == "" {
		return 0, 0, nil
	}
	file, err := safetensors.Open(f.path)
	if errors.Is(err, fs.ErrNotExist) {
		return 0, 0, nil
	}
	if err != nil {
		return 0, 0, err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	of := file.Metadata()
	updates, err1 := strconv.Atoi(of["updates"])
	drawn, err2 := strconv.Atoi(of["windows"])
	if err := errors.Join(err1, err2); err != nil || updates < 0 || drawn < 0 {
		return 0, 0, fmt.Errorf("%s: has no number of updates; delete it to begin anew", f.path)
	}
	list := f.numbers()
	read := make([][]float32, len(list))
	for i := range list {
		a, err := file.ReadArray(strconv.Itoa(i))
		if err == nil {
			read[i], err = a.Float32()
		}
		if err == nil && len(read[i]) != len(list[i]) {
			err = fmt.Errorf("%d: has %d numbers, needs %d", i, len(read[i]), len(list[i]))
		}
		if err != nil {
			return 0, 0, fmt.Errorf("%s: %w; delete it to begin anew", f.path, err)
		}
	}
	for i := range list {
		copy(list[i], read[i])
	}
	for _, l := range f.learners {
		if err := l.adam.Restore(int64(updates)); err != nil {
			return 0, 0, err
		}
	}
	return updates, drawn, nil
}

// save writes the numbers after so many updates and windows.
func (f *updatesFile) save(updates, drawn int) error {
	if f.path == "" {
		return nil
	}
	f.saved = time.Now()
	var list []*array.Array
	for i, x := range f.numbers() {
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
		return safetensors.Write(w, list, map[string]string{"updates": strconv.Itoa(updates), "windows": strconv.Itoa(drawn)})
	})
}
