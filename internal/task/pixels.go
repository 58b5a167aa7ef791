package task

import (
	"fmt"
	"math"
	"path/filepath"

	"github.com/farfield-ml/farfield/internal/dataset"
)

// Pixels generates images: each level from 0 to 255 is predicted from all levels before it, row by
// row and channel by channel (Katharopoulos et al. 2020, arXiv 2006.16236, section 4.2). The token
// at a position is the level before it; the first token is PixelStart.
type Pixels struct {
	images
	name          string
	height, width int
	channels      int
}

// levels is the number of levels, PixelStart the token that begins an image.
const (
	levels     = 256
	PixelStart = levels
)

var mnistGenSettings = []Setting{
	{"side", "28", "side of the images in pixels: 28, or 14 or 7 of the mean of 2×2 or 4×4"},
}

func openMNISTGen(o *settingsReader) (Source, error) {
	side := o.int("side")
	if o.err == nil && (side < 7 || 28%side != 0) {
		return nil, fmt.Errorf("side: it is %d, 28, 14 or 7 is needed", side)
	}
	m, err := OpenMNIST(filepath.Join(o.Folder, "mnist"), 0)
	if err != nil || o.err != nil {
		return nil, err
	}
	t := &Pixels{name: "mnist-gen", height: side, width: side, channels: 1}
	t.train, t.test = shrinkImages(m.train, 28/side), shrinkImages(m.test, 28/side)
	return t, nil
}

func openCIFARGen(o *settingsReader) (Source, error) {
	m, err := readCIFAR10(filepath.Join(o.Folder, "cifar10"), func(m *dataset.Images) *dataset.Images { return m })
	if err != nil {
		return nil, err
	}
	return &Pixels{images: m, name: "cifar-gen", height: 32, width: 32, channels: 3}, nil
}

// shrinkImages scales grey images down by side: a pixel is the rounded mean of a square.
func shrinkImages(m *dataset.Images, side int) *dataset.Images {
	if side == 1 {
		return m
	}
	s := &dataset.Images{Height: m.Height / side, Width: m.Width / side, Channels: 1, Labels: m.Labels}
	area := side * side
	for i := range m.Len() {
		from := m.Image(i)
		for y := range s.Height {
			for x := range s.Width {
				sum := 0
				for p := range area {
					sum += int(from[(y*side+p/side)*m.Width+x*side+p%side])
				}
				s.Pixels = append(s.Pixels, byte((sum+area/2)/area))
			}
		}
	}
	return s
}

// Spec returns the specification of the samples.
func (t *Pixels) Spec() Spec {
	return Spec{Name: t.name, Kind: Level, Metric: Bits, Vocab: levels + 1, Length: t.height * t.width * t.channels, Parts: 1, Outputs: 1, Count: t.countSamples()}
}

// Sample overwrites s with the levels of an image. Tokens lag targets by one position.
// It returns an error if the split has no sample i.
func (t *Pixels) Sample(s *Sample, split Split, i int) error {
	spec := t.Spec()
	if err := spec.CheckIndex(split, i); err != nil {
		return err
	}
	resetSample(s)
	m, i := t.locateImage(split, i)
	last := int32(PixelStart)
	for _, p := range m.Image(i) {
		s.Tokens = append(s.Tokens, last)
		s.Targets = append(s.Targets, float32(p))
		last = int32(p)
	}
	return nil
}

// Baselines scores equal probabilities and three histograms of levels: of all positions, by
// position, and by the neighbours to the left, above, and above to the right. It returns the
// errors of Sample.
func (t *Pixels) Baselines(n int) ([]Baseline, error) {
	return runBaselines(
		func() (Baseline, error) { return Baseline{Name: "equal chances", Score: math.Log2(levels)}, nil },
		func() (Baseline, error) {
			return t.scoreHistogram("frequency", n, 1, func([]float32, int) int { return 0 })
		},
		func() (Baseline, error) {
			return t.scoreHistogram("frequency at the place", n, t.Spec().Length, func(_ []float32, i int) int { return i })
		},
		func() (Baseline, error) {
			return t.scoreHistogram("table of three neighbours", n, neighbourBins*neighbourBins*neighbourBins, t.neighbourKey)
		},
	)
}

// neighbourBins is the number of bins of a neighbour's level: one for 0, seven of 32 levels and
// one of 31.
const neighbourBins = 9

// neighbourKey combines the bins of the levels to the left, above, and above to the right of
// position i in the same channel. Levels beyond the edge are 0.
func (t *Pixels) neighbourKey(x []float32, i int) int {
	row, pixel := t.width*t.channels, i/t.channels
	left, right := pixel%t.width > 0, pixel%t.width < t.width-1
	class := func(there bool, at int) int {
		if !there || at < 0 {
			return 0
		}
		return (int(x[at]) + 31) / 32
	}
	k := class(left, i-t.channels)
	k = k*neighbourBins + class(true, i-row)
	return k*neighbourBins + class(right, i-row+t.channels)
}

// scoreHistogram scores a histogram of levels for each key, in bits per level. Every count
// begins at a hundredth.
func (t *Pixels) scoreHistogram(name string, n, keys int, key func(x []float32, i int) int) (Baseline, error) {
	const unseen = 0.01
	spec := t.Spec()
	counts, sums := make([]float64, keys*levels), make([]float64, keys)
	learned, err := eachSample(t, Train, n, func(s *Sample) {
		for i, x := range s.Targets {
			k := key(s.Targets, i)
			counts[k*levels+int(x)]++
			sums[k]++
		}
	})
	if err != nil {
		return Baseline{}, err
	}
	bits, judged := 0., 0
	samples, err := eachSample(t, spec.JudgedSplit(), n, func(s *Sample) {
		for i, x := range s.Targets {
			k := key(s.Targets, i)
			bits -= math.Log2((counts[k*levels+int(x)] + unseen) / (sums[k] + levels*unseen))
		}
		judged += len(s.Targets)
	})
	return Baseline{Name: name, Score: bits / float64(judged), Learned: learned, Judged: samples}, err
}
