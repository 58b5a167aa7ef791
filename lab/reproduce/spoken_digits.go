package reproduce

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"sync"

	"github.com/farfield-ml/farfield/internal/dataset"
	"github.com/farfield-ml/farfield/internal/infile"
	"github.com/farfield-ml/farfield/internal/task"
)

var spokenDigits = Row{
	Name:   "spoken-digits",
	Doc:    "the digit that a synthetic voice says, from bands of its spectrum, by voices that are not learned from",
	Source: "a task of this project, spoken by espeak-ng; FAST (arXiv 2402.07901, section 5) names audio and speech as uses",
	Claim:  "no table of this setting",
	Seeds:  true, Tunes: true,
	pieces: spokenLessons.pieces, outcome: spokenLessons.outcome(nothingMore),
}

// Samples are frames of a spectrum.
const (
	spokenFrame  = 512 // samples of a frame, 23 ms at espeak-ng's rate of 22050 a second
	spokenHop    = 256
	spokenFrames = 64 // of a sample, padded with silence
	spokenBands  = 24
	quietest     = 1e-6 // power of silence
)

var (
	spokenWords    = []string{"zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"}
	spokenAccents  = []string{"en-us", "en-gb", "en-gb-scotland", "en-029"}
	spokenSpeeds   = []string{"130", "160", "190"}
	spokenVariants = [3][]string{{"m1", "m2", "m3", "m4", "f1", "f2", "f5", "Andy", "Annie", "Michael"}, {"m5", "f3"}, {"m7", "f4", "linda", "edward"}}
)

// spoken holds the samples of each split.
type spoken struct{ parts [3][]task.Sample }

// spokenOnce has the samples in memory for all trainings of a process.
var spokenOnce = sync.OnceValues(openSpoken)

// openSpoken lets espeak-ng say each digit with all voices and speeds. Voices of the three splits
// differ. The error where there is no espeak-ng is task.ErrNoData.
func openSpoken() (_ *spoken, err error) {
	program, err := exec.LookPath("espeak-ng")
	if err != nil {
		return nil, fmt.Errorf("espeak-ng: is not installed; Debian has a package of this name; %w", task.ErrNoData)
	}
	dir, err := os.MkdirTemp("", "spoken-digits-*")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	t := new(spoken)
	path := filepath.Join(dir, "word.wav")
	for split, variants := range spokenVariants {
		for digit, word := range spokenWords {
			for _, accent := range spokenAccents {
				for _, variant := range variants {
					for _, speed := range spokenSpeeds {
						voice := accent + "+" + variant
						if out, err := exec.Command(program, "-v", voice, "-s", speed, "-w", path, word).CombinedOutput(); err != nil {
							return nil, fmt.Errorf("espeak-ng, voice %s: %w: %s", voice, err, bytes.TrimSpace(out))
						}
						data, err := infile.ReadFile(path)
						if err != nil {
							return nil, err
						}
						sound, err := dataset.ReadWAV(bytes.NewReader(data))
						if err != nil {
							return nil, fmt.Errorf("espeak-ng, voice %s: %w", voice, err)
						}
						t.parts[split] = append(t.parts[split], task.Sample{Class: int32(digit), Values: spectrum(sound.Samples)})
					}
				}
			}
		}
	}
	return t, nil
}

// Spec returns the specification of the samples.
func (t *spoken) Spec() task.Spec {
	return task.Spec{Name: "spoken-digits", Kind: task.Class, Metric: task.Accuracy, Channels: spokenBands, Length: spokenFrames, Parts: 1, Classes: len(spokenWords),
		Count: [3]int{len(t.parts[0]), len(t.parts[1]), len(t.parts[2])}}
}

// ClassNames returns the words.
func (t *spoken) ClassNames() []string { return spokenWords }

// Sample overwrites s with the frames of a word. It returns an error if the split has no sample i.
func (t *spoken) Sample(s *task.Sample, split task.Split, i int) error {
	spec := t.Spec()
	if err := spec.CheckIndex(split, i); err != nil {
		return err
	}
	x := &t.parts[split][i]
	*s = task.Sample{Values: append(s.Values[:0], x.Values...), Class: x.Class}
	return nil
}

// Baselines scores the commonest word and the nearest mean of the spectra.
func (t *spoken) Baselines(n int) ([]task.Baseline, error) { return task.NumberBaselines(t, n) }

// spectrum returns the logarithm of the power of samples in bands of frequency, frame by frame
// [spokenFrames, spokenBands].
func spectrum(samples []float32) []float32 {
	loudest := float32(1e-9)
	for _, x := range samples {
		loudest = max(loudest, float32(math.Abs(float64(x))))
	}
	out := make([]float32, 0, spokenFrames*spokenBands)
	for frame := range spokenFrames {
		var power [spokenFrame / 2]float64
		if from := frame * spokenHop; from+spokenFrame <= len(samples) {
			for k := 1; k < spokenFrame/2; k++ {
				re, im := 0.0, 0.0
				for i := range spokenFrame {
					w := spokenWindow[i] * float64(samples[from+i]/loudest)
					re += w * spokenCos[k*i%spokenFrame]
					im += w * spokenCos[(k*i+spokenFrame/4)%spokenFrame]
				}
				power[k] = (re*re + im*im) / spokenFrame
			}
		}
		for band := range spokenBands {
			sum := quietest
			for k := bandEdge(band); k < bandEdge(band+1); k++ {
				sum += power[k]
			}
			out = append(out, float32(math.Log(sum)))
		}
	}
	return out
}

// bandEdge returns the first frequency of a band: bands widen with frequency, as in hearing.
func bandEdge(band int) int {
	const widest = spokenFrame/2 - 1
	x := float64(band) / spokenBands
	return 1 + band + int((widest-spokenBands-1)*x*x)
}

var spokenCos, spokenWindow = func() (cos, window [spokenFrame]float64) {
	for i := range cos {
		cos[i] = math.Cos(2 * math.Pi * float64(i) / spokenFrame)
		window[i] = 0.5 - 0.5*cos[i]
	}
	return cos, window
}()

var spokenLessons = lessons(func(o *Options) ([]*lesson, error) {
	steps := pick(o.Budget, 300, 1000, 5000)
	l, err := presetLesson("spoken-digits", "wav", steps, nil)
	if err != nil {
		return nil, err
	}
	c := &l.Config
	c.SetTask("spoken-digits")
	c.Batch, c.Rate, c.MinRate, c.Standardise = 32, 3e-3, 3e-4, true
	c.EvalEvery, c.EvalSamples = max(1, steps/4), 0
	l.open = func(string) (task.Source, error) { return spokenOnce() }
	l.Methods, l.Seeds = []method{softmax, programmed2, farThird2, linear}, pick(o.Budget, 1, 3, 3)
	l.Length, l.Baseline = spokenFrames, true
	return []*lesson{l}, nil
})
