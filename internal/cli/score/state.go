package score

import (
	"bytes"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/farfield-ml/farfield/internal/atomicfile"
	"github.com/farfield-ml/farfield/internal/cli/display"
	"github.com/farfield-ml/farfield/internal/cli/env"
	"github.com/farfield-ml/farfield/internal/cli/texts"
	"github.com/farfield-ml/farfield/internal/infile"
	"github.com/farfield-ml/farfield/internal/lock"
	"github.com/farfield-ml/farfield/model"
	"github.com/farfield-ml/farfield/score"
	"github.com/farfield-ml/farfield/token"
)

// scoring is a text that is being scored.
type scoring struct {
	cmd    *Command
	e      *env.Env
	in     io.ReadCloser // nil: the followed file is missing
	next   *os.File      // the file that has taken the name of the one that is read; nil: none
	src    texts.LineSource
	scorer *score.Scorer
	begins []byte // the first bytes that were scored, up to headBytes
	spoke  string // the last remark about a file that cannot be read
	found  string // the remark about where the text goes on

	state    string // file; "": none
	saved    time.Time
	atSave   int64 // lines that were printed then, and
	scoredAt int64 // bytes of the file that were scored
	doubtful int64 // lines up to which an earlier run may have printed them
	keeps    bool  // --out has the line of Rest, whose text is gone
	locks    []*lock.Lock

	w       io.Writer
	out     *os.File // --out; nil: standard output
	printed bytes.Buffer
	scored  []score.LineScore
	scorePlace
}

// scorePlace holds the progress through a text and its results.
type scorePlace struct {
	Offset int64  `json:"offset"`          // bytes of the file that were scored
	Number int64  `json:"lines"`           // lines that were scored, of all files
	Parts  int64  `json:"parts,omitempty"` // parts of the last line, if its end was not scored
	Head   uint32 `json:"head"`            // CRC-32C of the file's first bytes, up to headBytes
	// An incomplete last line behind Offset, which is scored and no part of the state: its bytes,
	// and the CRC-32C of the first of them, up to headBytes.
	Rest     int64           `json:"rest,omitempty"`
	RestHead uint32          `json:"rest_head,omitempty"`
	Total    score.LineScore `json:"total"`
	Top      []ScoredLine    `json:"top"`  // the most surprising first
	Rank     string          `json:"rank"` // of Top; "": total

	// Lines that were printed, and up to which they may be before the state is saved
	// another time. In a file of ours they are cut off behind OutBytes instead.
	Printed  int64  `json:"printed"`
	Claimed  int64  `json:"claimed"`
	Out      string `json:"out"` // name of the file; "": none so far
	OutBytes int64  `json:"out_bytes"`

	// CRC-32C of the last bytes before OutBytes, up to headBytes; nil: not known.
	OutTail *uint32 `json:"out_tail,omitempty"`

	// Flags that the lines of the file depend on; nil: not known.
	JSON      *bool    `json:"out_json,omitempty"`
	Threshold *float64 `json:"out_above,omitempty"` // 0: --above was not given, or 0
}

const (
	scoreSuffix = ".score"
	headBytes   = 1 << 12 // that tell a file from another of its name
	leastClaim  = 16      // lines
	saveEvery   = 10 * time.Second
	pollEvery   = 300 * time.Millisecond
)

// begin starts a text, or goes on with it.
func (t *scoring) begin(m *model.Model[float32], vocab *token.Vocabulary) (err error) {
	c := t.cmd
	t.w = t.e.Stdout
	if t.state = c.State; t.state == "" && c.Follow {
		t.state = c.File + scoreSuffix
	}
	if mixer, err := m.Config().Mixer(); c.Follow && err == nil && !mixer.Traits().Streaming {
		return fmt.Errorf("--follow: the state of %s grows with the text", m.Config().Mechanism)
	}
	if t.state == "" {
		if t.in, err = texts.OpenText(t.e, c.File); err != nil {
			return err
		}
		t.src = texts.LineSource{Reader: t.in, Longest: texts.LongestLine, WholeRunes: true}
		t.scorer, err = score.New(m, vocab)
		return err
	}
	if c.File == "" || c.File == "-" {
		return errors.New("--state: what came from standard input cannot be read again; it needs a file")
	}
	if err := env.CheckOutput(t.state, c.File); err != nil {
		return fmt.Errorf("--state: %w", err)
	}
	l, err := lock.LockFile(t.state)
	if err != nil {
		return fmt.Errorf("--state: %w", err)
	}
	t.locks = append(t.locks, l)
	data, err := infile.ReadFile(t.state)
	known := err == nil
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	f, err := infile.Open(c.File)
	if err != nil && !(c.Follow && errors.Is(err, fs.ErrNotExist)) {
		return err
	}
	if f != nil {
		t.in = f
	}
	if known {
		if err := t.restore(data, m, vocab); err != nil {
			return err
		}
	}
	if t.scorer == nil {
		if t.scorer, err = score.New(m, vocab); err != nil {
			return err
		}
	}
	if err := t.skipMark(); err != nil {
		return err
	}
	t.Rank = c.Rank
	t.src = texts.LineSource{Reader: t.in, Longest: texts.LongestLine, WholeRunes: true}
	if err := t.openOut(); err != nil {
		return err
	}
	fmt.Fprint(t.e.Notes(), t.found)
	return t.save()
}

// restore goes on from a state. It leaves the scorer nil where the text begins anew.
func (t *scoring) restore(data []byte, m *model.Model[float32], vocab *token.Vocabulary) (err error) {
	c := t.cmd
	s, err := score.RestoreScorer(data, m, vocab, &t.scorePlace)
	if err != nil {
		return fmt.Errorf("%s: %w", t.state, err)
	}
	if t.Rank == "" {
		t.Rank = "total"
	}
	if t.Rank != c.Rank {
		return fmt.Errorf("--rank: is %s, %s ranks by %s", c.Rank, t.state, t.Rank)
	}
	for i := range t.Top {
		t.Top[i].BitsPerByte = t.Top[i].PerByte()
	}
	t.doubtful = t.Claimed
	place, err := t.find()
	t.keeps = place == lost && t.Rest > 0
	t.Rest, t.RestHead = 0, 0
	switch {
	case err != nil:
		return err
	case place == lost && !c.Follow:
		t.found = fmt.Sprintf("%s is another file than before: begins anew\n", c.File)
		t.doubtful = 0
		was := t.scorePlace
		t.scorePlace = scorePlace{}
		if c.Filter.Out != "" {
			t.Out, t.OutBytes, t.OutTail, t.JSON, t.Threshold = was.Out, was.OutBytes, was.OutTail, was.JSON, was.Threshold
		}
		return nil
	case place == lost:
		t.found = fmt.Sprintf("%s is another file than before; what its forerunner had after line %d is not there\n", c.File, t.Number)
		t.Offset, t.Parts, t.doubtful, t.Claimed = 0, 0, 0, t.Printed
	case place == rotated:
		t.found = fmt.Sprintf("%s is another file than before: goes on after line %d in %s\n", c.File, t.Number, c.File+rotatedSuffix)
	default:
		t.found = fmt.Sprintf("goes on after line %d\n", t.Number)
	}
	if kept := len(t.Top); c.Top > kept && t.Number > int64(kept) {
		return fmt.Errorf("--top: is %d, %s keeps the %d most surprising of %d lines", c.Top, t.state, kept, t.Number)
	}
	t.Top = t.Top[:min(len(t.Top), c.Top)]
	t.scorer = s
	return nil
}

// skipMark passes a byte order mark at the beginning of the file. It returns an error if the file
// is gzip, which has no place to continue at.
func (t *scoring) skipMark() error {
	f, ok := t.in.(*os.File)
	if !ok || t.Offset > 0 {
		return nil
	}
	b := make([]byte, len(infile.ByteOrderMark))
	n, err := f.ReadAt(b, 0)
	if err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	switch b = b[:n]; {
	case bytes.HasPrefix(b, []byte(texts.GzipMagic)):
		return env.InputErrorf("%s: is gzip; --state and --follow need a plain text", f.Name())
	case string(b) == infile.ByteOrderMark:
		t.passed(b)
		_, err = f.Seek(t.Offset, io.SeekStart)
		return err
	}
	return nil
}

// openOut opens --out and cuts off lines that were written after the state was saved.
func (t *scoring) openOut() error {
	path, above := t.cmd.Filter.Out, 0.
	if t.cmd.Threshold != nil {
		above = *t.cmd.Threshold
	}
	if path == "" {
		if t.Out != "" {
			return fmt.Errorf("--out: is not given, the lines of %s go to %s; name it, or another --state", t.state, t.Out)
		}
		if n := t.doubtful - t.Printed; n > 0 {
			t.found += fmt.Sprintf("the next %s may repeat the last of the run before\n", display.Pluralise(int(n), "printed line"))
		}
		return nil
	}
	f, l, err := env.OwnFile(path, t.cmd.File, t.state)
	if err != nil {
		return err
	}
	t.out, t.w, t.locks = f, f, append(t.locks, l)
	info, err := f.Stat()
	if err != nil {
		return err
	}
	switch size, name := info.Size(), filepath.Base(path); {
	case name != t.Out && size > 0:
		return fmt.Errorf("--out: %s has %d bytes that are of no run that %s knows; name another file", path, size, t.state)
	case name != t.Out:
		t.Out, t.OutBytes, t.OutTail = name, 0, nil
	case t.OutBytes < 0 || size < t.OutBytes:
		return fmt.Errorf("--out: %s has %d bytes, %s knows of %d", path, size, t.state, t.OutBytes)
	case t.JSON != nil && *t.JSON != t.cmd.JSON:
		return fmt.Errorf("--json: is %t, %s was made with %t; name another file", t.cmd.JSON, path, *t.JSON)
	case t.Threshold != nil && *t.Threshold != above:
		return fmt.Errorf("--above: is %v, %s was made with %v; name another file", above, path, *t.Threshold)
	}
	tail, err := t.outTail()
	if err != nil {
		return err
	}
	if t.OutTail != nil && *t.OutTail != tail {
		return fmt.Errorf("--out: %s is another file than %s knows: the CRC-32C before byte %d is %08x, was %08x; name another file", path, t.state, t.OutBytes, tail, *t.OutTail)
	}
	t.JSON, t.Threshold = &t.cmd.JSON, &above
	t.doubtful, t.Claimed = 0, t.Printed
	if t.keeps && info.Size() > t.OutBytes {
		end := make([]byte, 1)
		if _, err := f.ReadAt(end, info.Size()-1); err != nil {
			return err
		}
		if end[0] == '\n' { // the record is whole
			t.OutBytes = info.Size()
		}
	}
	if _, err := os.Stat(t.cmd.File + rotatedSuffix); t.cmd.Follow && !isKnown(t.Offset) && info.Size() > t.OutBytes && err == nil {
		t.found += fmt.Sprintf("the last %d bytes of %s are cut off; after a rotation their lines are in %s\n", info.Size()-t.OutBytes, path, t.cmd.File+rotatedSuffix)
	}
	if err := f.Truncate(t.OutBytes); err != nil {
		return err
	}
	_, err = f.Seek(t.OutBytes, io.SeekStart)
	return err
}

// outTail returns the CRC-32C of the last bytes of --out before OutBytes.
func (t *scoring) outTail() (uint32, error) {
	b := make([]byte, min(t.OutBytes, headBytes))
	n, err := t.out.ReadAt(b, t.OutBytes-int64(len(b)))
	if errors.Is(err, io.EOF) { // truncated meanwhile, which the next run refuses by its size
		err = nil
	}
	return headSum(b[:n]), err
}

// headSum returns the CRC-32C of the first bytes of b, up to headBytes.
func headSum(b []byte) uint32 {
	return crc32.Checksum(b[:min(len(b), headBytes)], crc32.MakeTable(crc32.Castagnoli))
}

// close closes files and releases locks.
func (t *scoring) close() {
	if t.in != nil {
		t.in.Close()
	}
	if t.next != nil {
		t.next.Close()
	}
	if t.out != nil {
		t.out.Close()
	}
	for _, l := range t.locks {
		l.Release()
	}
}

// run scores line after line until the text ends, or an interrupt. A state has no line without its
// end, but the parts of a long one.
func (t *scoring) run() error {
	err := t.all()
	stopped := err != nil && t.e.Context.Err() != nil && errors.Is(err, t.e.Context.Err())
	if err != nil && !stopped {
		return err
	}
	if t.state != "" {
		t.Claimed = t.Printed
		if rest := t.src.Unread; !stopped && len(rest) > 0 {
			t.Rest, t.RestHead = int64(len(rest)), headSum(rest)
			if t.cmd.Lines && t.out == nil {
				t.Claimed++
			}
		}
		if err := t.save(); err != nil {
			return err
		}
	}
	if !stopped { // the next run finds the whole line
		if err := t.last(); err != nil {
			return err
		}
	}
	if err := t.print(); err != nil {
		return err
	}
	if stopped && t.state != "" {
		return env.Interruption{Err: err, Text: fmt.Sprintf("stopped after line %d; the same command goes on", t.Number)}
	}
	return err
}

// all scores the lines of the text, and with --follow the lines that are appended later.
func (t *scoring) all() error {
	var lines [][]byte
	for {
		if err := t.e.Context.Err(); err != nil {
			return err
		}
		err := io.EOF
		if t.in != nil {
			lines, err = t.src.NextLines(lines[:0], 1, batchBytes)
		}
		switch {
		case err == nil:
			// A file that was empty at the beginning may begin with a byte order mark now.
			if mark := []byte(infile.ByteOrderMark); t.state != "" && t.Offset == 0 && bytes.HasPrefix(lines[0], mark) {
				t.passed(mark)
				lines[0] = lines[0][len(mark):]
			}
			err = t.lines(lines)
		case !errors.Is(err, io.EOF):
		case t.next != nil:
			err = t.turn(t.next)
		case t.cmd.Follow:
			err = t.wait()
		default:
			return nil
		}
		if err != nil {
			return err
		}
		if err := t.saveInTime(); err != nil {
			return err
		}
	}
}

// last scores a line without its end.
func (t *scoring) last() error {
	if line := t.src.Rest(); line != nil {
		return t.lines([][]byte{line})
	}
	return nil
}

// passed counts a line that was scored.
func (t *scoring) passed(line []byte) {
	t.Offset += int64(len(line))
	t.begins = append(t.begins, line[:min(len(line), headBytes-len(t.begins))]...)
}

// claim saves a state which knows that n lines more may be printed, unless the last one
// does. Lines go to standard output once their state is there, so that a run after one
// that was killed can say which may repeat.
func (t *scoring) claim(n int64) error {
	if t.state == "" || t.out != nil || !t.cmd.Lines && !t.cmd.Follow || t.Printed+n <= t.Claimed {
		return nil
	}
	t.Claimed = t.Printed + max(leastClaim, n, 2*(t.Printed-t.atSave))
	return t.save()
}

// isKnown reports whether a state with an offset knows its file from another of the name.
func isKnown(offset int64) bool { return offset > int64(len(infile.ByteOrderMark)) }

// saveInTime saves the state of new lines every few seconds, and of the first ones at once.
func (t *scoring) saveInTime() error {
	if t.state == "" || t.Offset == t.scoredAt || isKnown(t.scoredAt) && time.Since(t.saved) < saveEvery {
		return nil
	}
	if t.Claimed > t.Printed {
		t.Claimed = t.Printed + max(leastClaim, 2*(t.Printed-t.atSave))
	}
	return t.save()
}

// save keeps how far the text is.
func (t *scoring) save() error {
	t.Head = headSum(t.begins)
	if t.out != nil {
		if err := t.out.Sync(); err != nil {
			return err
		}
		tail, err := t.outTail()
		if err != nil {
			return err
		}
		t.OutTail = &tail
	}
	t.Claimed = max(t.Claimed, t.doubtful, t.Printed)
	data, err := t.scorer.AppendBinary(nil, t.scorePlace)
	if err != nil {
		return err
	}
	t.saved, t.atSave, t.scoredAt = time.Now(), t.Printed, t.Offset
	return atomicfile.WriteBytes(t.state, data)
}
