package task

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/farfield-ml/farfield/internal/dataset"
)

// Pathfinder decides whether two discs lie on the same path, from the 1024 grey values of an
// image of 32×32, row by row, as tokens (Long Range Arena). Files are divided 80:10:10 in their
// order. Generated splits are endless.
type Pathfinder struct {
	count     [3]int // samples by split
	readImage func(split Split, i int) (pixels []byte, label int32, err error)
}

var pathfinderSettings = []Setting{
	{"from", "files", "files: records of images, or the released folder curv_contour_length_14 and the like; generated: images drawn as they are needed"},
	{"contour", "14", "paddles of a path: 6 is LRA's easy set, 9 the one between, 14 the hard one"},
}

func openPathfinder(o *settingsReader) (Source, error) {
	contour := o.int("contour")
	if o.err == nil && contour != 6 && contour != 9 && contour != 14 {
		return nil, fmt.Errorf("contour: it is %d; there are 6, 9 and 14", contour)
	}
	if o.oneOf("from", "files", "generated") == "generated" {
		return NewPathfinder(contour, o.Seed)
	}
	return OpenPathfinder(filepath.Join(o.Folder, "pathfinder32"), contour)
}

// OpenPathfinder reads the images with a length of contour in a folder: records of a label and
// 1024 bytes in a file such as hard_contour14_4000.bin.gz or contour14.bin, or the folder of
// the release. It returns an error if the files are missing or malformed.
func OpenPathfinder(folder string, contour int) (*Pathfinder, error) {
	release := fmt.Sprintf("curv_contour_length_%d", contour)
	if contour == 6 {
		release = "curv_baseline"
	}
	if dir, err := findFile(folder, release); err == nil {
		return openRelease(dir)
	}
	known := map[int]string{6: "easy_contour6_2000.bin.gz", 14: "hard_contour14_4000.bin.gz"}
	names := []string{fmt.Sprintf("contour%d.bin", contour), fmt.Sprintf("contour%d.bin.gz", contour)}
	if known[contour] != "" {
		names = append(names, known[contour])
	}
	path, err := findFile(folder, append(names, release)...)
	if err != nil {
		return nil, err
	}
	m, err := dataset.ReadFile(path, dataset.ReadImageRecords(32, 32, 2))
	if err != nil {
		return nil, err
	}
	t := &Pathfinder{}
	t.setCounts(m.Len())
	t.readImage = func(split Split, i int) ([]byte, int32, error) {
		i += t.firstIndex(split)
		return m.Image(i), int32(m.Labels[i]), nil
	}
	return t, nil
}

// setCounts divides n samples 80:10:10.
func (t *Pathfinder) setCounts(n int) { t.count = [3]int{n - 2*(n/10), n / 10, n / 10} }

// firstIndex returns the index of the first sample of a split among all.
func (t *Pathfinder) firstIndex(split Split) int {
	at := 0
	for _, n := range t.count[:split] {
		at += n
	}
	return at
}

// releasedImage is an image of the release.
type releasedImage struct {
	path  string
	label int32
}

// openRelease lists the images of a folder of the release. The files metadata/B.npy name them
// in lines of text with folder, file, number, label and more. Empty files are omitted, as LRA
// does. Sample reads the images. It returns an error if no image is listed.
func openRelease(dir string) (*Pathfinder, error) {
	folder := filepath.Join(dir, "metadata")
	entries, err := os.ReadDir(folder)
	if err != nil {
		return nil, err
	}
	slices.SortFunc(entries, func(a, b fs.DirEntry) int {
		// By number: 2.npy before 10.npy.
		if len(a.Name()) != len(b.Name()) {
			return len(a.Name()) - len(b.Name())
		}
		return strings.Compare(a.Name(), b.Name())
	})
	var list []releasedImage
	for _, e := range entries {
		if filepath.Ext(e.Name()) != ".npy" {
			continue
		}
		part, err := dataset.ReadFile(filepath.Join(folder, e.Name()), func(r io.Reader) ([]releasedImage, error) { return readMetadata(r, dir) })
		if err != nil {
			return nil, err
		}
		list = append(list, part...)
	}
	list = slices.DeleteFunc(list, func(p releasedImage) bool {
		info, err := os.Stat(p.path)
		return err == nil && info.Size() == 0
	})
	if len(list) == 0 {
		return nil, fmt.Errorf("%s: its metadata name no images", dir)
	}
	t := &Pathfinder{}
	t.setCounts(len(list))
	t.readImage = func(split Split, i int) ([]byte, int32, error) {
		r := list[t.firstIndex(split)+i]
		p, err := dataset.ReadFile(r.path, dataset.ReadPicture)
		if err != nil {
			return nil, 0, err
		}
		if p.Width != 32 || p.Height != 32 {
			return nil, 0, fmt.Errorf("%s: it is %d×%d, 32×32 is needed", r.path, p.Width, p.Height)
		}
		// The files are grey: all channels are equal.
		pixels := make([]byte, 1024)
		for k := range pixels {
			pixels[k] = p.Pixels[3*k]
		}
		return pixels, r.label, nil
	}
	return t, nil
}

// readMetadata reads the images of a file of metadata. It returns an error if a line is
// malformed or names a file outside dir.
func readMetadata(r io.Reader, dir string) ([]releasedImage, error) {
	b, err := io.ReadAll(io.LimitReader(r, 64<<20))
	if err != nil {
		return nil, err
	}
	if bytes.HasPrefix(b, []byte("\x93NUMPY")) {
		return nil, errors.New("metadata: it is an array of numpy's, the release has lines of text")
	}
	var list []releasedImage
	n := 0
	for line := range strings.Lines(string(b)) {
		n++
		f := strings.Fields(line)
		if len(f) == 0 {
			continue
		}
		if len(f) < 4 {
			return nil, fmt.Errorf("line %d: it has %d fields, 4 are needed", n, len(f))
		}
		label, err := strconv.Atoi(f[3])
		if err != nil || label != 0 && label != 1 {
			return nil, fmt.Errorf("line %d: label is %.20q, 0 or 1 is needed", n, f[3])
		}
		name := filepath.FromSlash(f[0] + "/" + f[1])
		if !filepath.IsLocal(name) {
			return nil, fmt.Errorf("line %d: %q is not in the folder", n, name)
		}
		list = append(list, releasedImage{filepath.Join(dir, name), int32(label)})
	}
	return list, nil
}

// askPathfinder returns the question whether the discs of a picture lie on one path.
func askPathfinder(*settingsReader, ModelInfo) (*Question, error) {
	return askPicture(32, 0, false, pathClasses, 2), nil
}

// pathClasses are the names of the classes.
var pathClasses = []string{"two paths", "one path"}

// ClassNames returns the names of the classes.
func (t *Pathfinder) ClassNames() []string { return slices.Clone(pathClasses) }

// Spec returns the specification of the samples.
func (t *Pathfinder) Spec() Spec {
	return Spec{Name: "pathfinder", Kind: Class, Metric: Accuracy, Vocab: 256, Length: 1024, Parts: 1, Classes: 2, Count: t.count}
}

// Sample overwrites s with the pixels of an image; class 1 is one path. It returns an error if
// the split has no sample i or the image cannot be read.
func (t *Pathfinder) Sample(s *Sample, split Split, i int) error {
	spec := t.Spec()
	if err := spec.CheckIndex(split, i); err != nil {
		return err
	}
	pixels, label, err := t.readImage(split, i)
	if err != nil {
		return err
	}
	resetSample(s)
	s.Class = label
	for _, p := range pixels {
		s.Tokens = append(s.Tokens, int32(p))
	}
	return nil
}

// Picture returns image i of a split. It returns an error if the split has no image i or the
// image cannot be read.
func (t *Pathfinder) Picture(split Split, i int) (*dataset.Images, error) {
	spec := t.Spec()
	if err := spec.CheckIndex(split, i); err != nil {
		return nil, err
	}
	pixels, _, err := t.readImage(split, i)
	if err != nil {
		return nil, err
	}
	return onePicture(32, 32, 1, pixels), nil
}

// Baselines scores the commonest class, a threshold of the sum of the pixels, and a threshold
// of the number of pixels that are not black. It returns the errors of Sample.
func (t *Pathfinder) Baselines(n int) ([]Baseline, error) {
	sum := func(s *Sample) float64 {
		x := 0.
		for _, p := range s.Tokens {
			x += float64(p)
		}
		return x
	}
	lit := func(s *Sample) float64 {
		x := 0.
		for _, p := range s.Tokens {
			if p > 0 {
				x++
			}
		}
		return x
	}
	return runBaselines(
		func() (Baseline, error) { return scoreMajority(t, n) },
		func() (Baseline, error) { return scoreThreshold("threshold of the pixels' sum", t, n, sum) },
		func() (Baseline, error) {
			return scoreThreshold("threshold of the pixels that are not black", t, n, lit)
		},
	)
}
