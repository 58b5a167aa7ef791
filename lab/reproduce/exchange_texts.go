package reproduce

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/farfield-ml/farfield/internal/dataset"
	"github.com/farfield-ml/farfield/internal/exchange"
	"github.com/farfield-ml/farfield/internal/inference"
	"github.com/farfield-ml/farfield/internal/infile"
	"github.com/farfield-ml/farfield/internal/published"
	"github.com/farfield-ml/farfield/internal/task"
	"github.com/farfield-ml/farfield/model"
	"github.com/farfield-ml/farfield/train"
)

// Kinds of texts.
const (
	meetings = "meetings"    // QMSum, a text each
	novel    = "novel"       // War and Peace
	code     = "code"        // the packages of this checkout
	tales    = "tales"       // TinyStories, the first stories
	tales2   = "other tales" // the last ones
	bytes8   = "enwik8"
)

// exchangeShared holds what the pieces of a run have in common.
type exchangeShared struct {
	o      *Options
	last   string // the model at hand
	opened *inference.Model
	of     *exchange.Subject
	use    *used
}

// subject returns the trained model of a comparison.
func (x *exchangeShared) subject(w *Work, c *swapConfig) (*exchange.Subject, error) {
	if c.Training != "" {
		m, err := x.train(w, c.Training, c.Steps)
		if err != nil {
			return nil, err
		}
		x.opened, x.last = nil, ""
		return &exchange.Subject{Model: m}, nil
	}
	return x.open(c.Model, c.Tokens)
}

// open returns a published model for windows of tokens.
func (x *exchangeShared) open(name string, tokens int) (*exchange.Subject, error) {
	dir, err := folderOf(x.o, name)
	if err != nil {
		return nil, err
	}
	o := inference.Options{}
	if name == miniLM && tokens > 512 {
		o.Positions = published.Interpolate
	}
	if key := name + o.Positions; x.last != key {
		m, err := inference.Open(dir, o)
		if err != nil {
			return nil, err
		}
		s, err := m.ExchangeSubject()
		if err != nil {
			return nil, err
		}
		x.last, x.opened, x.of = key, m, s
	}
	return x.of, nil
}

// refusal returns why a model cannot be exchanged.
func (x *exchangeShared) refusal(name string) (string, error) {
	dir, err := folderOf(x.o, name)
	if err != nil {
		return "", err
	}
	m, err := inference.Open(dir, inference.Options{})
	if err != nil {
		return "", err
	}
	if _, err = m.ExchangeSubject(); err == nil {
		return "", nil
	}
	return strings.TrimPrefix(err.Error(), dir+": "), nil
}

// train returns a softmax model of a lesson, which goes on where it was interrupted and is kept beside
// the pieces.
func (x *exchangeShared) train(w *Work, name string, steps int) (*model.Model, error) {
	t, err := x.trainer(w, name, steps)
	if err != nil {
		return nil, err
	}
	return t.Model(), t.Close()
}

// trainer returns the trainer of train when it has ended.
func (x *exchangeShared) trainer(w *Work, name string, steps int) (*train.Trainer, error) {
	l, err := trainedLesson(name, steps)
	if err != nil {
		return nil, err
	}
	c := l.configFor(&softmax, 1, 1)
	c.Folder = x.o.Data
	src, err := c.OpenTask()
	if err != nil {
		return nil, err
	}
	dir := filepath.Join(x.o.Out, "exchange", "trained", fmt.Sprintf("%s-%d", name, steps))
	t, err := train.Resume(src, dir)
	if errors.Is(err, fs.ErrNotExist) {
		t, err = train.New(c, src, dir)
	}
	if err != nil {
		return nil, err
	}
	if !t.HasEnded() {
		if _, err = t.Train(w.Ctx, train.Observer{Step: func(s train.Step) { w.reportShare(0.9 * float64(s.Step) / float64(steps)) }}); err != nil {
			return nil, errors.Join(err, t.Close())
		}
	}
	return t, nil
}

// trainedLesson returns the lesson of a model that is trained first.
func trainedLesson(name string, steps int) (*lesson, error) {
	if name == "needle" {
		l, err := presetLesson(name, name, steps, map[string]string{"data": "enwik8"})
		if err == nil {
			l.Length, l.Vocab = needleContext, 256
		}
		return l, err
	}
	l, err := presetLesson(name, "default", steps, map[string]string{"data": "enwik8"})
	if err == nil {
		l.Config.Model.Context = 1 << 10
		l.Config.Batch, l.Config.FirstBatch = byteUpdate>>10, byteUpdate/l.Config.FirstContext
		l.Length, l.Vocab = 1<<10, 256
	}
	return l, err
}

// windows returns windows of a kind of texts: those of the calibration, from the first texts, or those
// that judge, from the last.
func (x *exchangeShared) windows(s *exchange.Subject, c *swapConfig, kind string, calibration bool) ([][]int32, error) {
	texts, err := x.texts(kind)
	if err != nil {
		return nil, err
	}
	var all [][]int32
	for _, text := range texts {
		list, err := x.cut(s, text, c.Tokens)
		if err != nil {
			return nil, err
		}
		if len(texts) > 1 && len(list) > 1 {
			list = list[:1] // each text once
		}
		for _, w := range list {
			if len(w) == c.Tokens {
				all = append(all, w)
			}
		}
	}
	n := c.Windows
	if calibration {
		n = max(1, c.Keys/len(c.Calibration)/c.Tokens)
	}
	if calibrated := max(1, c.Keys/max(len(c.Calibration), 1)/c.Tokens); len(all) < calibrated+c.Windows {
		return nil, fmt.Errorf("%s: %d texts of %d tokens, %d are needed", kind, len(all), c.Tokens, calibrated+c.Windows)
	}
	switch {
	case kind == tales && calibration: // behind those that judge
		at := (len(all) - n) / 2
		return all[at : at+n], nil
	case kind == tales:
		return all[:n], nil
	case calibration:
		return all[:n], nil
	}
	return all[len(all)-n:], nil
}

// cut returns the windows of a text for the model at hand; bytes are tokens of a trained one.
func (x *exchangeShared) cut(s *exchange.Subject, text string, n int) ([][]int32, error) {
	if x.opened != nil {
		return x.opened.Windows(text, n)
	}
	var list [][]int32
	for at := 0; at+n <= len(text); at += n {
		w := make([]int32, n)
		for i := range w {
			w[i] = int32(text[at+i])
		}
		list = append(list, w)
	}
	return list, nil
}

// texts returns the texts of a kind.
func (x *exchangeShared) texts(kind string) ([]string, error) {
	switch kind {
	case meetings:
		list, err := readMeetings(x.o.Data, "val.jsonl", "test.jsonl")
		var texts []string
		for i := range list {
			texts = append(texts, list[i].text())
		}
		return texts, err
	case novel:
		data, err := x.read("warandpeace/2600-0.txt.gz")
		var texts []string
		for at := 60000; at+60000 < len(data); at += 60000 {
			texts = append(texts, strings.ToValidUTF8(data[at:][:30000], ""))
		}
		return texts, err
	case code:
		files, err := filepath.Glob("../nn/*.go")
		if err != nil || len(files) == 0 {
			return nil, fmt.Errorf("../nn: holds no code, run in the folder lab of a checkout; %w", task.ErrNoData)
		}
		all := ""
		for _, path := range files {
			text, err := infile.ReadFile(path)
			if err != nil {
				return nil, err
			}
			all += string(text)
		}
		var texts []string
		for ; len(all) >= 12000; all = all[12000:] {
			texts = append(texts, strings.ToValidUTF8(all[:12000], ""))
		}
		return texts, nil
	case tales, tales2:
		text, err := x.read("tinystories/niklas6.txt")
		return []string{text}, err
	}
	text, err := x.read("enwik8/enwik8-first-4000000.gz", "enwik8/enwik8")
	return []string{text}, err
}

// read returns the first 4,000,000 bytes of the first file that is there.
func (x *exchangeShared) read(names ...string) (string, error) {
	for _, name := range names {
		path := filepath.Join(x.o.Data, filepath.FromSlash(name))
		if _, err := os.Stat(path); err == nil {
			data, err := dataset.ReadFile(path, func(r io.Reader) ([]byte, error) { return io.ReadAll(io.LimitReader(r, 4_000_000)) })
			return string(data), err
		}
	}
	return "", fmt.Errorf("%s: it holds no %s; %w", x.o.Data, strings.Join(names, ", no "), task.ErrNoData)
}

// meeting is a line of QMSum.
type meeting struct {
	Turns []struct {
		Speaker string `json:"speaker"`
		Content string `json:"content"`
	} `json:"meeting_transcripts"`
	Queries []struct {
		Query string      `json:"query"`
		Spans [][2]string `json:"relevant_text_span"`
	} `json:"specific_query_list"`
}

func (m *meeting) turn(i int) string { return m.Turns[i].Speaker + ": " + m.Turns[i].Content }

func (m *meeting) text() string {
	var b strings.Builder
	for i := range m.Turns {
		if i > 0 {
			b.WriteByte(' ')
		}
		b.WriteString(m.turn(i))
	}
	return b.String()
}

// maxMeeting bounds the bytes of a line of QMSum.
const maxMeeting = 8 << 20

// readMeetings reads files of QMSum in a folder of data sets.
func readMeetings(data string, names ...string) (list []meeting, err error) {
	for _, name := range names {
		path := filepath.Join(data, "qmsum", name)
		f, err := infile.Open(path)
		if errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("%s: is not there; github.com/Yale-LILY/QMSum has it; %w", path, task.ErrNoData)
		}
		if err != nil {
			return nil, err
		}
		lines := bufio.NewScanner(f)
		lines.Buffer(nil, maxMeeting)
		for lines.Scan() {
			var m meeting
			if err := json.Unmarshal(lines.Bytes(), &m); err != nil {
				return nil, errors.Join(fmt.Errorf("%s: %w", path, err), f.Close())
			}
			list = append(list, m)
		}
		if err := errors.Join(lines.Err(), f.Close()); err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
	}
	return list, nil
}
