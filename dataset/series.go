package dataset

import (
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
)

// SeriesSet is a data set of labelled series.
type SeriesSet struct {
	Name    string
	Classes []string // in the order of the file
	Cases   []Series
}

// Series is one labelled series.
type Series struct {
	Channels [][]float64 // [channels][values]; NaN: missing
	Class    int         // index in Classes
}

// ReadSeries reads a file of aeon's format .ts without time stamps. Comments begin with #,
// declarations with @. After @data each line is one case: channels and class separated by
// colons, values of a channel by commas. It returns an error if a line is malformed or there is
// no case.
func ReadSeries(r io.Reader) (*SeriesSet, error) {
	s := &SeriesSet{}
	channels := 0 // 0: unknown
	data := false
	err := eachLine(r, func(_ int, line []byte) error {
		text := strings.TrimSpace(string(line))
		switch {
		case text == "" || text[0] == '#':
			return nil
		case !data:
			if text[0] != '@' {
				return fmt.Errorf("declaration: %.40q does not begin with @", text)
			}
			var err error
			data, err = s.readDeclaration(strings.Fields(text))
			return err
		}
		parts := strings.Split(text, ":")
		if channels == 0 {
			channels = len(parts) - 1
		}
		if len(parts)-1 != channels || channels == 0 {
			return fmt.Errorf("channels: there are %d, in the first case %d", len(parts)-1, channels)
		}
		c := Series{Class: slices.Index(s.Classes, strings.TrimSpace(parts[channels]))}
		if c.Class < 0 {
			return fmt.Errorf("class: it is %.40q, there are %q", parts[channels], s.Classes)
		}
		for i, part := range parts[:channels] {
			values, err := seriesValues(part)
			if err != nil {
				return fmt.Errorf("channel %d: %w", i, err)
			}
			c.Channels = append(c.Channels, values)
		}
		s.Cases = append(s.Cases, c)
		return nil
	})
	if err != nil {
		return nil, err
	}
	if len(s.Cases) == 0 {
		return nil, errors.New("@data: there is no case")
	}
	return s, nil
}

// readDeclaration reads one declaration and reports whether it is the last. It returns an error
// if the file has time stamps or no classes.
func (s *SeriesSet) readDeclaration(words []string) (last bool, err error) {
	switch strings.ToLower(words[0]) {
	case "@problemname":
		s.Name = strings.Join(words[1:], " ")
	case "@timestamps":
		if len(words) < 2 || !strings.EqualFold(words[1], "false") {
			return false, fmt.Errorf("@timeStamps: it is %q, false is needed", words[1:])
		}
	case "@classlabel":
		if len(words) < 3 || !strings.EqualFold(words[1], "true") {
			return false, fmt.Errorf("@classLabel: it is %q, true and the classes are needed", words[1:])
		}
		s.Classes = words[2:]
	case "@data":
		if s.Classes == nil {
			return false, errors.New("@data: no @classLabel before it")
		}
		return true, nil
	}
	return false, nil
}

// seriesValues parses the values of a channel.
func seriesValues(part string) ([]float64, error) {
	values := make([]float64, 0, strings.Count(part, ",")+1)
	for field := range strings.SplitSeq(part, ",") {
		field = strings.TrimSpace(field)
		if field == "?" || strings.EqualFold(field, "nan") {
			values = append(values, math.NaN())
			continue
		}
		x, err := parseNumber(field)
		if err != nil {
			return nil, fmt.Errorf("value %d: %w", len(values), err)
		}
		values = append(values, x)
	}
	return values, nil
}
