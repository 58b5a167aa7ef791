package dataset

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"path/filepath"
	"strconv"
	"strings"
)

// Header describes a WFDB record of one segment (header(5) of the WFDB Applications Guide).
type Header struct {
	Name    string
	Rate    float64 // samples per second
	Length  int     // samples of each signal; 0: not stated
	Signals []Signal
}

// Signal is one signal of a record.
type Signal struct {
	File        string // name of the file, next to the header
	Format      int    // 80, 16 or 212
	Gain        float64
	Baseline    int // raw value of 0
	Units       string
	First       int   // raw value of the first sample, if HasChecksum
	Checksum    int16 // sum of all raw samples, if HasChecksum
	HasChecksum bool
	Description string
}

// Bounds of a header.
const (
	headerBytes   = 1 << 20
	headerSignals = 1024
)

// ReadHeader reads a .hea file. It returns an error if a line is malformed, the record has several
// segments or signals are missing.
func ReadHeader(r io.Reader) (*Header, error) {
	var h *Header
	want := 0
	err := eachLine(io.LimitReader(r, headerBytes), func(_ int, line []byte) error {
		f := strings.Fields(string(line))
		var err error
		switch {
		case len(f) == 0 || f[0][0] == '#':
		case h == nil:
			h, want, err = recordLine(f)
		case len(h.Signals) < want:
			var s Signal
			if s, err = signalLine(f); err == nil {
				h.Signals = append(h.Signals, s)
			}
		}
		return err
	})
	switch {
	case err != nil:
		return nil, err
	case h == nil:
		return nil, errors.New("header: there is no record line")
	case len(h.Signals) != want:
		return nil, fmt.Errorf("signals: the record line says %d, %d are described", want, len(h.Signals))
	}
	return h, nil
}

// recordLine parses a record line: name, number of signals, sampling rate, number of samples.
func recordLine(f []string) (h *Header, signals int, err error) {
	h = &Header{Name: f[0], Rate: 250}
	if strings.Contains(h.Name, "/") {
		return nil, 0, fmt.Errorf("record: %q has several segments, one is read", f[0])
	}
	if len(f) < 2 {
		return nil, 0, errors.New("record: the number of signals is missing")
	}
	if signals, err = strconv.Atoi(f[1]); err != nil || signals < 1 || signals > headerSignals {
		return nil, 0, fmt.Errorf("signals: there are %.20q, 1 to %d are read", f[1], headerSignals)
	}
	if len(f) > 2 {
		rate, _, _ := strings.Cut(f[2], "/")
		rate, _, _ = strings.Cut(rate, "(")
		if h.Rate, err = parseNumber(rate); err != nil || h.Rate <= 0 {
			return nil, 0, fmt.Errorf("rate: it is %.20q", f[2])
		}
	}
	if len(f) > 3 {
		if h.Length, err = strconv.Atoi(f[3]); err != nil || h.Length < 0 || h.Length > math.MaxInt32 {
			return nil, 0, fmt.Errorf("samples: there are %.20q", f[3])
		}
	}
	return h, signals, nil
}

// signalLine parses a signal line: file, format, gain with baseline and units, resolution, zero,
// first value, checksum, block size and description.
func signalLine(f []string) (s Signal, err error) {
	if len(f) < 2 {
		return s, errors.New("signal: the format is missing")
	}
	s = Signal{File: f[0], Gain: 200, Units: "mV"}
	if s.File != filepath.Base(s.File) || !filepath.IsLocal(s.File) || s.File == "." || strings.ContainsAny(s.File, `/\`) {
		return s, fmt.Errorf("file: %q is not the name of a file beside the header", s.File)
	}
	switch f[1] {
	case "16", "80", "212":
		s.Format, _ = strconv.Atoi(f[1])
	default:
		return s, fmt.Errorf("format: it is %.20q; 16, 80 and 212 are read, without offset or samples in frames", f[1])
	}
	integer := func(i int, field string) (int, error) {
		if i >= len(f) {
			return 0, nil
		}
		n, err := strconv.Atoi(f[i])
		if err != nil || n != int(int32(n)) {
			return 0, fmt.Errorf("%s: it is %.20q", field, f[i])
		}
		return n, nil
	}
	zero, err := integer(4, "zero")
	if err != nil {
		return s, err
	}
	s.Baseline = zero
	if len(f) > 2 {
		if err := s.parseGain(f[2]); err != nil {
			return s, err
		}
	}
	if s.First, err = integer(5, "first value"); err != nil {
		return s, err
	}
	sum, err := integer(6, "checksum")
	if err != nil {
		return s, err
	}
	s.Checksum = int16(sum)
	s.HasChecksum = len(f) > 6
	if block, err := integer(7, "block size"); err != nil || block != 0 {
		return s, fmt.Errorf("block size: it is %.20q, 0 is needed", f[7])
	}
	if len(f) > 8 {
		s.Description = strings.Join(f[8:], " ")
	}
	return s, nil
}

// parseGain parses gain(baseline)/units; baseline and units are optional.
func (s *Signal) parseGain(field string) error {
	value, units, ok := strings.Cut(field, "/")
	if ok {
		s.Units = units
	}
	value, baseline, ok := strings.Cut(value, "(")
	if ok {
		n, err := strconv.Atoi(strings.TrimSuffix(baseline, ")"))
		if err != nil || n != int(int32(n)) {
			return fmt.Errorf("baseline: it is %.20q", baseline)
		}
		s.Baseline = n
	}
	gain, err := parseNumber(value)
	if err != nil || gain < 0 {
		return fmt.Errorf("gain: it is %.20q", value)
	}
	if gain > 0 { // 0 means unknown
		s.Gain = gain
	}
	return nil
}

// Recording is a WFDB record: header and raw samples.
type Recording struct {
	Header
	Samples [][]int16 // [signals][length]
}

// Value returns sample i of a signal in physical units.
func (r *Recording) Value(signal, i int) float64 {
	s := &r.Signals[signal]
	return float64(int(r.Samples[signal][i])-s.Baseline) / s.Gain
}

// ReadRecording reads a record by the path of its header, and the signal files next to it. It
// returns an error if a file is missing or malformed, or first values or checksums do not match.
func ReadRecording(path string) (*Recording, error) {
	h, err := ReadFile(path, ReadHeader)
	if err != nil {
		return nil, err
	}
	rec := &Recording{Header: *h}
	for at := 0; at < len(h.Signals); {
		n := 1
		for at+n < len(h.Signals) && h.Signals[at+n].File == h.Signals[at].File {
			n++
		}
		group := h.Signals[at : at+n]
		samples, err := ReadFile(filepath.Join(filepath.Dir(path), group[0].File), func(r io.Reader) ([][]int16, error) {
			return ReadSignals(r, group, h.Length)
		})
		if err != nil {
			return nil, err
		}
		if at > 0 && len(samples[0]) != len(rec.Samples[0]) {
			return nil, fmt.Errorf("%s: %s: it has %d samples, %s has %d", path, group[0].File, len(samples[0]), h.Signals[0].File, len(rec.Samples[0]))
		}
		rec.Samples = append(rec.Samples, samples...)
		at += n
	}
	rec.Length = len(rec.Samples[0])
	return rec, nil
}

// ReadSignals reads the signal file of a group of signals and returns raw samples
// [signals][length]; length of 0 means all. It returns an error if the file is truncated, or
// formats, first values or checksums do not match, or if group is empty or length negative.
func ReadSignals(r io.Reader, group []Signal, length int) ([][]int16, error) {
	if len(group) == 0 || length < 0 {
		return nil, fmt.Errorf("samples: %d of %d signals", length, len(group))
	}
	format := group[0].Format
	for i, s := range group {
		if s.Format != format {
			return nil, fmt.Errorf("signal %d: format is %d, that of signal 0 in the same file %d", i, s.Format, format)
		}
	}
	b, err := io.ReadAll(r)
	if err != nil {
		return nil, err
	}
	have := 0
	switch format {
	case 80:
		have = len(b)
	case 16:
		have = len(b) / 2
	case 212:
		have = len(b) / 3 * 2
		if len(b)%3 == 2 {
			have++
		}
	default:
		return nil, fmt.Errorf("format: it is %d; 16, 80 and 212 are read", format)
	}
	if length == 0 {
		length = have / len(group)
	}
	if length > have/len(group) {
		return nil, fmt.Errorf("samples: truncated: %d of %d signals of %d", have, len(group), length)
	}
	if length == 0 {
		return nil, errors.New("samples: there is none")
	}
	out := make([][]int16, len(group))
	for s := range out {
		out[s] = make([]int16, length)
		for t := range out[s] {
			out[s][t] = sampleAt(b, format, t*len(group)+s)
		}
	}
	for i, s := range group {
		if !s.HasChecksum {
			continue
		}
		if got := int(out[i][0]); got != s.First {
			return nil, fmt.Errorf("signal %d: its first value is %d, the header says %d", i, got, s.First)
		}
		sum := int16(0)
		for _, x := range out[i] {
			sum += x
		}
		if sum != s.Checksum {
			return nil, fmt.Errorf("signal %d: its checksum is %d, the header says %d", i, sum, s.Checksum)
		}
	}
	return out, nil
}

// sampleAt returns sample i of the bytes of a signal file (signal(5)).
func sampleAt(b []byte, format, i int) int16 {
	switch format {
	case 80:
		return int16(b[i]) - 128
	case 16:
		return int16(binary.LittleEndian.Uint16(b[2*i:]))
	}
	// 212: two samples of 12 bits in three bytes; the middle byte holds the high bits.
	at := i / 2 * 3
	if i%2 == 0 {
		return int16(uint16(b[at])<<4|uint16(b[at+1])<<12) >> 4
	}
	return int16(uint16(b[at+2])<<4|uint16(b[at+1]>>4)<<12) >> 4
}

// Annotation marks a sample of a record.
type Annotation struct {
	Sample            int64
	Code              int // see BeatLetter
	Sub, Channel, Num int
	Aux               string
}

// beats maps PhysioNet's codes of beats to their letters.
var beats = map[int]rune{
	1: 'N', 2: 'L', 3: 'R', 4: 'a', 5: 'V', 6: 'F', 7: 'J', 8: 'A', 9: 'S', 10: 'E', 11: 'j', 12: '/', 13: 'Q',
	25: 'B', 30: '?', 34: 'e', 35: 'n', 38: 'f', 41: 'r',
}

// BeatLetter returns the letter of a beat. ok is false if the annotation marks something else,
// such as rhythm or noise.
func (a Annotation) BeatLetter() (letter rune, ok bool) {
	letter, ok = beats[a.Code]
	return
}

// Codes that modify other annotations (annot(5)).
const (
	annSkip = 59
	annNum  = 60
	annSub  = 61
	annChan = 62
	annAux  = 63
)

// ReadAnnotations reads the annotations of a record, ordered by sample. It reads r to its end. It
// returns an error if the stream has no end mark, is out of order or begins with a modifier, or r
// fails.
func ReadAnnotations(r io.Reader) ([]Annotation, error) {
	var list []Annotation
	var at int64
	channel, num := 0, 0
	var two [2]byte
	for n := 0; ; n++ {
		if _, err := io.ReadFull(r, two[:]); err != nil {
			return nil, fmt.Errorf("word %d: the annotations have no end: %w", n, err)
		}
		word := binary.LittleEndian.Uint16(two[:])
		code, value := int(word>>10), int(word&0x3ff)
		if word == 0 {
			if _, err := io.Copy(io.Discard, r); err != nil { // the end of gzip has a checksum
				return nil, fmt.Errorf("end: %w", err)
			}
			return list, nil
		}
		if code >= annNum && len(list) == 0 {
			return nil, fmt.Errorf("word %d: code is %d, and no annotation before it", n, code)
		}
		switch code {
		case annSkip:
			b, err := readExactly(r, "interval", 4)
			if err != nil {
				return nil, fmt.Errorf("word %d: %w", n, err)
			}
			// PDP-11 byte order: the high half first.
			at += int64(int32(uint32(binary.LittleEndian.Uint16(b))<<16 | uint32(binary.LittleEndian.Uint16(b[2:]))))
		case annNum:
			num = int(int8(value))
			list[len(list)-1].Num = num
		case annSub:
			list[len(list)-1].Sub = int(int8(value))
		case annChan:
			channel = value
			list[len(list)-1].Channel = channel
		case annAux:
			b, err := readExactly(r, "note", value+value%2)
			if err != nil {
				return nil, fmt.Errorf("word %d: %w", n, err)
			}
			list[len(list)-1].Aux = strings.TrimRight(string(b[:value]), "\x00")
		default:
			at += int64(value)
			if at < 0 || len(list) > 0 && at < list[len(list)-1].Sample {
				return nil, fmt.Errorf("word %d: sample %d comes after one that is later", n, at)
			}
			list = append(list, Annotation{Sample: at, Code: code, Channel: channel, Num: num})
		}
	}
}
