package task

import (
	"fmt"
	"slices"

	"github.com/farfield-ml/farfield/internal/dataset"
)

// Pictures classifies the user's own pictures: one folder of PNG and JPEG files per class. A
// picture of any size is scaled to a square.
type Pictures struct {
	side  int // of the square, in pixels
	patch int // side of the patches; 0: grey pixels
	*classFolder
}

// pictureSuffixes end the names of pictures.
var pictureSuffixes = []string{".png", ".jpg", ".jpeg"}

var pictureSettings = []Setting{
	{"data", "", "folder with a folder of PNG or JPEG files for each class, or with such folders train, valid, test"},
	{"side", "32", "pixels of the sides that pictures are scaled to"},
	{"as", "pixels", "pixels: tokens of 256 grey values; patches: red, green and blue from 0 to 1"},
	{"patch", "4", "side of a patch; it divides the side of a picture"},
}

func openPictures(o *settingsReader) (Source, error) {
	patch, err := o.patchSide()
	if err != nil {
		return nil, err
	}
	return newPictures(o.text("data"), o.int("side"), patch, o.splitter(), o.ScoreOnly)
}

// patchSide returns the side of the patches, or 0 for pixels. It returns an error if the
// setting is below 1.
func (o *settingsReader) patchSide() (int, error) {
	if o.oneOf("as", "pixels", "patches") == "pixels" {
		return 0, nil
	}
	patch := o.int("patch")
	if o.err == nil && patch < 1 {
		return 0, fmt.Errorf("patch: it is %d", patch)
	}
	return patch, nil
}

// askOwnPicture returns the question for the class of a picture.
func askOwnPicture(o *settingsReader, k ModelInfo) (*Question, error) {
	patch, err := o.patchSide()
	if err != nil || o.err != nil {
		return nil, err
	}
	side := o.int("side")
	if err := checkSides(side, patch); err != nil {
		return nil, err
	}
	return askPicture(side, patch, true, k.Classes, len(k.Classes)), nil
}

// checkSides returns an error if side is out of range or not divisible by patch.
func checkSides(side, patch int) error {
	if err := checkRange("side", side, 1, 4096); err != nil {
		return err
	}
	if patch < 0 || patch > 0 && side%patch != 0 {
		return fmt.Errorf("patch: it is %d, which does not divide a side of %d", patch, side)
	}
	return nil
}

// OpenPictures lists the files of a folder; Sample reads them. side is the square's side in
// pixels, patch the side of patches, or 0 for pixels, and seed draws the split. It returns an
// error if a side is out of range or no multiple of patch, or if the folder cannot be read or has
// fewer than two classes.
func OpenPictures(folder string, side, patch int, seed uint64) (*Pictures, error) {
	return newPictures(folder, side, patch, splitter{seed: seed}, false)
}

// newPictures is OpenPictures. With scoreOnly one class is enough.
func newPictures(folder string, side, patch int, parts splitter, scoreOnly bool) (*Pictures, error) {
	if folder == "" {
		return nil, fmt.Errorf("data: a folder is needed")
	}
	if err := checkSides(side, patch); err != nil {
		return nil, err
	}
	c, err := readClassFolder(folder, parts, scoreOnly, pictureSuffixes...)
	if err != nil {
		return nil, err
	}
	return &Pictures{side, patch, c}, nil
}

// Spec returns the specification of the samples.
func (t *Pictures) Spec() Spec {
	s := Spec{Name: "picture", Kind: Class, Metric: Accuracy, Vocab: 256, Length: t.side * t.side, Parts: 1,
		Classes: len(t.classFolder.classes), Count: t.classFolder.countSamples()}
	if t.patch > 0 {
		s.Vocab, s.Channels, s.Length = 0, 3*t.patch*t.patch, s.Length/(t.patch*t.patch)
	}
	return s
}

// ClassNames returns the names of the folders.
func (t *Pictures) ClassNames() []string { return slices.Clone(t.classFolder.classes) }

// Sample overwrites s with a picture: its grey pixels row by row, or its patches. It returns
// an error if the split has no sample i or the file cannot be read.
func (t *Pictures) Sample(s *Sample, split Split, i int) error {
	spec := t.Spec()
	if err := spec.CheckIndex(split, i); err != nil {
		return err
	}
	resetSample(s)
	square, err := t.readSquare(split, i)
	if err != nil {
		return err
	}
	s.Class = t.classFolder.files[split][i].class
	if t.patch > 0 {
		s.Values = appendPatches(s.Values, square, t.side, t.side, 3, t.patch)
		return nil
	}
	for i := 0; i < len(square); i += 3 {
		s.Tokens = append(s.Tokens, int32(GreyLevel(square[i], square[i+1], square[i+2])))
	}
	return nil
}

// readSquare returns picture i of a split as RGB [side, side, 3]. The picture must exist.
func (t *Pictures) readSquare(split Split, i int) ([]byte, error) {
	p, err := dataset.ReadFile(t.classFolder.files[split][i].path, dataset.ReadPicture)
	if err != nil {
		return nil, err
	}
	return resizePicture(p, t.side), nil
}

// Picture returns the square of a picture in grey. It returns an error if the split has no
// picture i or the file cannot be read.
func (t *Pictures) Picture(split Split, i int) (*dataset.Images, error) {
	spec := t.Spec()
	if err := spec.CheckIndex(split, i); err != nil {
		return nil, err
	}
	square, err := t.readSquare(split, i)
	if err != nil {
		return nil, err
	}
	return onePicture(t.side, t.side, 3, square), nil
}

// resizePicture scales a picture to RGB [side, side, 3]. A pixel is the mean of the pixels
// under it, weighted by the covered area.
func resizePicture(p *dataset.Picture, side int) []byte {
	out := make([]byte, 0, 3*side*side)
	for y := range side {
		rows := coveredPixels(y, side, p.Height)
		for x := range side {
			columns := coveredPixels(x, side, p.Width)
			var sum [3]float64
			total := 0.
			for _, r := range rows {
				for _, c := range columns {
					w := r.weight * c.weight
					at := p.Pixels[3*(r.index*p.Width+c.index):]
					for k := range sum {
						sum[k] += w * float64(at[k])
					}
					total += w
				}
			}
			for k := range sum {
				out = append(out, byte(sum[k]/total+0.5))
			}
		}
	}
	return out
}

// cover is a pixel along one axis and its covered length.
type cover struct {
	index  int
	weight float64
}

// coveredPixels returns the pixels of an axis of n that lie under pixel i of side.
func coveredPixels(i, side, n int) []cover {
	// In units of 1/side of a pixel of n: from i·n to (i+1)·n.
	from, to := i*n, (i+1)*n
	var list []cover
	for at := from / side; at*side < to; at++ {
		list = append(list, cover{at, float64(min(to, (at+1)*side) - max(from, at*side))})
	}
	return list
}

// Baselines scores the commonest class and the class with the nearest mean picture. It returns
// the errors of Sample.
func (t *Pictures) Baselines(n int) ([]Baseline, error) { return NumberBaselines(t, n) }
