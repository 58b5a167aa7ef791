package runs

import (
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"

	"github.com/farfield-ml/farfield/internal/infile"
	"github.com/farfield-ml/farfield/internal/task"
	"github.com/farfield-ml/farfield/internal/token"
	"github.com/farfield-ml/farfield/train"
)

// OpenRunText reads the text at data or, if data is "", the text of the run in dir. folder is the
// folder of data sets; "": as in the run. With isWhole, the whole text is the validation set. It
// returns an error if the run has no text or the text cannot be read.
func OpenRunText(dir, data, folder string, vocab *token.Vocabulary, isWhole bool) (*task.Text, error) {
	if data != "" {
		corpus, err := task.ReadCorpus(data, vocab.Kind() == token.KindChars, vocab.Tokenizer() != nil)
		if err != nil {
			return nil, err
		}
		read := task.NewText
		if isWhole {
			read = task.NewWholeText
		}
		text, err := read(corpus, vocab)
		if err != nil {
			return nil, errors.Join(err, corpus.Close())
		}
		return text, nil
	}
	src, _, err := OpenRunTask(dir, folder)
	if errors.Is(err, train.ErrDataChanged) {
		return nil, err
	}
	if err != nil {
		return nil, fmt.Errorf("--data is not given, and the run does not tell: %w", err)
	}
	text, ok := src.(*task.Text)
	if !ok || text.Vocab.Size() != vocab.Size() {
		return nil, fmt.Errorf("%s: the text of the run has changed: its vocabulary is another", dir)
	}
	if isWhole {
		text = text.ValidationOnly()
	}
	return text, nil
}

// OpenRunTask opens the task of the run in dir. folder is the folder of data sets; "": as in the
// run. It returns an error if dir is no run, if its data cannot be read, or if it is not the data
// that the run learned from.
func OpenRunTask(dir, folder string) (task.Source, train.Config, error) {
	config, err := train.RunConfig(train.RunFolder(dir))
	if err != nil {
		return nil, config, err
	}
	if folder != "" { // the data sets may have moved
		config.Folder = folder
	}
	if err := CheckStoredData(config, filepath.Join(train.RunFolder(dir), "config.json")); err != nil {
		return nil, config, err
	}
	src, err := config.OpenTask()
	if err == nil {
		err = train.CheckData(dir, src)
	}
	return src, config, err
}

// CheckStoredData returns an error if the data of c is a pipe or a device. c comes from the file
// path, and such a file from a stranger could make the command wait for ever, or fill the memory.
func CheckStoredData(c train.Config, path string) error {
	if row, err := task.Lookup(c.Task); err == nil && slices.Contains(row.DataSets, c.TaskSet["data"]) {
		return nil // the name of a data set is no path
	}
	if err := infile.CheckStored(c.TaskSet["data"]); err != nil {
		return fmt.Errorf("%s: data: %w", path, err)
	}
	return nil
}

// DescribeData describes a task in words, with its settings and samples.
func DescribeData(c train.Config, s task.Spec) string {
	var b strings.Builder
	b.WriteString(s.Name)
	for _, key := range slices.Sorted(maps.Keys(c.TaskSet)) {
		fmt.Fprintf(&b, " --task-set %s=%s", key, c.TaskSet[key])
	}
	if c.LRAQuirk {
		b.WriteString(" --lra-quirk")
	}
	count := func(n int) string {
		if n == task.Endless {
			return "any number"
		}
		return fmt.Sprint(n)
	}
	fmt.Fprintf(&b, ": %s to learn from, %s to validate, %s to be judged by; asks for: %v, judged by %s",
		count(s.Count[task.Train]), count(s.Count[task.Valid]), count(s.Count[task.Test]), s.Kind, s.Metric)
	return b.String()
}

// KeepHeapTight makes the garbage collector run more often if text is large: when the heap has
// grown by a tenth, and not only when it has doubled.
func KeepHeapTight(text *task.Text) {
	const large = 64 << 20
	if len(text.Corpus.Text) >= large && !text.Corpus.IsMapped {
		debug.SetGCPercent(10)
	}
}
