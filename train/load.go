package train

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"

	"github.com/farfield-ml/farfield/internal/checkpoint"
	"github.com/farfield-ml/farfield/internal/exchanged"
	"github.com/farfield-ml/farfield/internal/infile"
	"github.com/farfield-ml/farfield/internal/token"
	"github.com/farfield-ml/farfield/model"
	"github.com/farfield-ml/farfield/nn"
)

// RunFolder returns the folder of the run to which path belongs. path is that folder, or one of its
// checkpoints.
func RunFolder(path string) string {
	path = exchanged.Resolve(path)
	if checkpoint.Is(path) {
		return filepath.Join(path, "..", "..")
	}
	return path
}

// isAlone reports whether path is a checkpoint outside of a run: it is not in a folder of
// checkpoints, and the folder above its own is no run with checkpoints. Files beside it are
// of something else.
func isAlone(path string) bool {
	if !checkpoint.Is(path) {
		return false
	}
	run := RunFolder(path)
	in, err := os.Stat(filepath.Join(path, ".."))
	all, missing := os.Stat(filepath.Join(run, checkpointsFolder))
	if err == nil && missing == nil && os.SameFile(in, all) {
		return false
	}
	if _, err := latestCheckpoint(run); err == nil {
		return false
	}
	// A copy beside the other checkpoints of its run stays its own without them.
	_, isOfRun := os.Stat(filepath.Join(path, runFile))
	_, err = decodeConfig(filepath.Join(run, configFile))
	return isOfRun != nil || err != nil
}

// maxLoads bounds the loads of a checkpoint that its training replaces meanwhile.
const maxLoads = 100

// ReadCheckpoint calls read with the folder of a checkpoint: path itself, or of the run path the best
// checkpoint, and the latest if there is no best one. Every file is verified by its checksum, and the
// run by the copies in its checkpoint. If a trainer replaces the checkpoint meanwhile, ReadCheckpoint
// calls read again with the new one. Of an exchanged model it reads the checkpoint of the trained
// model. It returns the error of read, and one if path is neither a checkpoint nor a run, or if a file
// is damaged.
func ReadCheckpoint(path string, read func(dir string) error) error {
	if _, err := os.Stat(path); err != nil {
		return err
	}
	if err := CheckForeign(path); err != nil {
		return err
	}
	for n := 1; ; n++ {
		from, err := findCheckpoint(path)
		if err != nil {
			return err
		}
		before, _ := infile.ReadFile(filepath.Join(from, manifestFile)) // nil: removed meanwhile
		if err = verifyCheckpoint(from, from == path); err == nil {
			err = read(from)
		}
		after, _ := infile.ReadFile(filepath.Join(from, manifestFile))
		if n == maxLoads || before != nil && bytes.Equal(before, after) {
			return err
		}
	}
}

// loadModel reads a model and the vocabulary of its text, which is nil for other tasks.
func loadModel(path string) (*model.Model, *token.Vocabulary, error) {
	return checkpoint.LoadModel(path, nn.Float32, nil, ReadCheckpoint)
}

// findCheckpoint returns the folder of the checkpoint that ReadCheckpoint reads.
func findCheckpoint(path string) (string, error) {
	path = exchanged.Resolve(path)
	if checkpoint.Is(path) {
		return path, nil
	}
	if _, err := os.Stat(filepath.Join(path, configFile)); err != nil {
		return "", fmt.Errorf("%s: is neither a run nor a checkpoint: it has no %s and no %s%s", path, configFile, manifestFile, HintInside(path))
	}
	// The best checkpoint has its old name while it is replaced.
	for _, name := range []string{bestName, oldPrefix + bestName, bestName} {
		if best := filepath.Join(path, checkpointsFolder, name); checkpoint.Is(best) {
			return best, nil
		}
	}
	if text, err := infile.ReadFile(filepath.Join(path, configFile)); err == nil && isModelConfig(text) {
		return "", modelAloneError(filepath.Join(path, configFile))
	}
	return latestCheckpoint(path)
}

// HintInside looks for a model in the folders inside path, such as a package that contains one. It
// returns a hint for an error message, or "" if there is none.
func HintInside(path string) string {
	entries, err := os.ReadDir(path)
	if err != nil {
		return ""
	}
	for _, e := range entries {
		inside := filepath.Join(path, e.Name())
		if _, err := os.Stat(filepath.Join(inside, configFile)); err == nil {
			return fmt.Sprintf("; %s has one", inside)
		}
	}
	return ""
}

// verifyCheckpoint returns an error if a file of the checkpoint in path is damaged, or differs from
// its copy in the run. Unless isNamed, a checkpoint that knows of a better one is refused.
func verifyCheckpoint(path string, isNamed bool) error {
	info, err := checkpoint.Read(path)
	if err != nil {
		return err
	}
	if info.Best != nil && info.Best.Step != info.Step && !isNamed && checkpoint.IsStepName(filepath.Base(path)) {
		best := filepath.Join(filepath.Dir(path), bestName)
		return fmt.Errorf("%s: is missing, and update %d has the best score; name %s to read the latest checkpoint", best, info.Best.Step, path)
	}
	if isAlone(path) {
		return nil
	}
	return checkRun(RunFolder(path), path)
}
