package dataset

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
)

// Audio is a sampled sound.
type Audio struct {
	Rate     int // frames a second
	Channels int
	Samples  []float32 // [frames, Channels]; integers are scaled to [-1, 1]
}

// Format codes of WAV.
const (
	wavPCM        = 1
	wavFloat      = 3
	wavExtensible = 0xfffe
)

// wavChannels bounds the number of channels.
const wavChannels = 1024

// wavFormat is the chunk "fmt ".
type wavFormat struct {
	code, channels, bits int
	rate                 uint32
}

// ReadWAV reads a RIFF WAVE file with integers of 8, 16, 24 or 32 bits, or floats of 32 or 64 bits.
// It ignores other chunks, and reads r to its end. It returns an error if the file is malformed, if
// its format is another, if a sample is not finite, or if r fails.
func ReadWAV(r io.Reader) (*Audio, error) {
	head, err := readExactly(r, "header", 12)
	if err != nil {
		return nil, err
	}
	if string(head[:4]) != "RIFF" || string(head[8:]) != "WAVE" {
		return nil, fmt.Errorf("header: it is %q and %q, RIFF and WAVE are needed", head[:4], head[8:])
	}
	var f *wavFormat
	for {
		chunk, err := readExactly(r, "chunk", 8)
		if err != nil {
			return nil, fmt.Errorf("data: there is none: %w", err)
		}
		id, size := string(chunk[:4]), int64(binary.LittleEndian.Uint32(chunk[4:]))
		switch id {
		case "fmt ":
			if f, err = readWAVFormat(r, size); err != nil {
				return nil, err
			}
		case "data":
			if f == nil {
				return nil, errors.New("data: no chunk fmt before it")
			}
			a, err := f.readSamples(r, size)
			if err != nil {
				return nil, err
			}
			if _, err := io.Copy(io.Discard, r); err != nil { // the end of gzip has a checksum
				return nil, fmt.Errorf("end: %w", err)
			}
			return a, nil
		default:
			if _, err := io.CopyN(io.Discard, r, size+size%2); err != nil {
				return nil, fmt.Errorf("chunk %q: of %d bytes: %w", id, size, err)
			}
		}
	}
}

// readWAVFormat reads the chunk "fmt " of size bytes.
func readWAVFormat(r io.Reader, size int64) (*wavFormat, error) {
	if size < 16 || size > 64 {
		return nil, fmt.Errorf("fmt: it has %d bytes, 16 to 64 are read", size)
	}
	b, err := readExactly(r, "fmt", int(size+size%2))
	if err != nil {
		return nil, err
	}
	u16 := func(at int) int { return int(binary.LittleEndian.Uint16(b[at:])) }
	f := &wavFormat{code: u16(0), channels: u16(2), rate: binary.LittleEndian.Uint32(b[4:]), bits: u16(14)}
	if f.code == wavExtensible {
		if size < 40 {
			return nil, fmt.Errorf("fmt: the extensible format has 40 bytes, here %d", size)
		}
		f.code = u16(24)
	}
	if f.channels < 1 || f.channels > wavChannels {
		return nil, fmt.Errorf("channels: there are %d, 1 to %d are read", f.channels, wavChannels)
	}
	if f.rate == 0 || f.rate > math.MaxInt32 {
		return nil, fmt.Errorf("rate: it is %d", f.rate)
	}
	if f.decoder() == nil {
		return nil, fmt.Errorf("format: code %d with %d bits; integers (1) of 8, 16, 24, 32 and floats (3) of 32, 64 are read", f.code, f.bits)
	}
	if got, want := u16(12), f.channels*f.bits/8; got != want {
		return nil, fmt.Errorf("frame: it has %d bytes, %d channels of %d bits have %d", got, f.channels, f.bits, want)
	}
	return f, nil
}

// decoder returns the function that decodes a sample, or nil for an unsupported format.
func (f *wavFormat) decoder() func(b []byte) float32 {
	le := binary.LittleEndian
	switch {
	case f.code == wavPCM && f.bits == 8:
		return func(b []byte) float32 { return (float32(b[0]) - 128) / 128 }
	case f.code == wavPCM && f.bits == 16:
		return func(b []byte) float32 { return float32(int16(le.Uint16(b))) / (1 << 15) }
	case f.code == wavPCM && f.bits == 24:
		return func(b []byte) float32 {
			return float32(int32(uint32(b[0])<<8|uint32(b[1])<<16|uint32(b[2])<<24)) / (1 << 31)
		}
	case f.code == wavPCM && f.bits == 32:
		return func(b []byte) float32 { return float32(int32(le.Uint32(b))) / (1 << 31) }
	case f.code == wavFloat && f.bits == 32:
		return func(b []byte) float32 { return math.Float32frombits(le.Uint32(b)) }
	case f.code == wavFloat && f.bits == 64:
		return func(b []byte) float32 { return float32(math.Float64frombits(le.Uint64(b))) }
	}
	return nil
}

// readSamples reads size bytes of samples. It returns an error if size is no multiple of a frame,
// the data is truncated or a sample is not finite.
func (f *wavFormat) readSamples(r io.Reader, size int64) (*Audio, error) {
	width := f.bits / 8
	if frame := int64(f.channels * width); size%frame != 0 {
		return nil, fmt.Errorf("data: %d bytes are not a multiple of a frame's %d", size, frame)
	}
	if size > math.MaxInt32 {
		return nil, fmt.Errorf("data: %d bytes, at most %d are read", size, math.MaxInt32)
	}
	b, err := readExactly(r, "data", int(size))
	if err != nil {
		return nil, err
	}
	a := &Audio{Rate: int(f.rate), Channels: f.channels, Samples: make([]float32, len(b)/width)}
	decode := f.decoder()
	for i := range a.Samples {
		x := decode(b[i*width:])
		if x-x != 0 {
			return nil, fmt.Errorf("data: sample %d is %v", i, x)
		}
		a.Samples[i] = x
	}
	return a, nil
}
