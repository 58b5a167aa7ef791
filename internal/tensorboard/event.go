// Package tensorboard makes the records of the event files that TensorBoard draws
// curves from.
//
// A record is the length of an event, the event, and a checksum of each, CRC-32C
// turned by 15 bits and moved by a constant (TensorFlow's TFRecord). An event is a
// protocol buffer: 1 the time, 2 the step, 3 the version of the file (in the first
// event alone), 5 a summary, which repeats 1: a value with 1 its tag and 2 its
// number.
package tensorboard

import (
	"bufio"
	"encoding/binary"
	"hash/crc32"
	"io"
	"math"
)

// Scalar is a point of the curve Tag.
type Scalar struct {
	Tag   string
	Value float64 // kept as float32
}

// version is what the first event of a file says.
const version = "brain.Event:2"

// AppendHeader appends the record that a file begins with. Times are in seconds
// since 1970.
func AppendHeader(dst []byte, time float64) []byte {
	event := appendTime(nil, time)
	return appendRecord(dst, appendBytes(event, 3, []byte(version)))
}

// AppendScalars appends the record of a step.
func AppendScalars(dst []byte, time float64, step int64, list ...Scalar) []byte {
	var summary []byte
	for _, s := range list {
		value := appendBytes(nil, 1, []byte(s.Tag))
		value = append(value, 2<<3|fixed32)
		value = binary.LittleEndian.AppendUint32(value, math.Float32bits(float32(s.Value)))
		summary = appendBytes(summary, 1, value)
	}
	event := appendTime(nil, time)
	event = append(event, 2<<3|varint)
	event = binary.AppendUvarint(event, uint64(step))
	return appendRecord(dst, appendBytes(event, 5, summary))
}

// The types of a protocol buffer's fields.
const (
	varint  = 0
	fixed64 = 1
	counted = 2
	fixed32 = 5
)

func appendTime(event []byte, time float64) []byte {
	event = append(event, 1<<3|fixed64)
	return binary.LittleEndian.AppendUint64(event, math.Float64bits(time))
}

func appendBytes(dst []byte, field byte, value []byte) []byte {
	dst = append(dst, field<<3|counted)
	dst = binary.AppendUvarint(dst, uint64(len(value)))
	return append(dst, value...)
}

func appendRecord(dst, event []byte) []byte {
	at := len(dst)
	dst = binary.LittleEndian.AppendUint64(dst, uint64(len(event)))
	dst = binary.LittleEndian.AppendUint32(dst, maskedChecksum(dst[at:]))
	dst = append(dst, event...)
	return binary.LittleEndian.AppendUint32(dst, maskedChecksum(event))
}

// maxEvent bounds the bytes of an event that WholeRecords reads.
const maxEvent = 1 << 20

// WholeRecords returns how many bytes of r, from its beginning, are whole records.
func WholeRecords(r io.Reader) (int64, error) {
	in, size := bufio.NewReader(r), int64(0)
	var head [12]byte
	for {
		if _, err := io.ReadFull(in, head[:]); err != nil {
			return size, onlyEnd(err)
		}
		n := binary.LittleEndian.Uint64(head[:])
		if n > maxEvent || maskedChecksum(head[:8]) != binary.LittleEndian.Uint32(head[8:]) {
			return size, nil
		}
		event := make([]byte, n+4)
		if _, err := io.ReadFull(in, event); err != nil {
			return size, onlyEnd(err)
		}
		if maskedChecksum(event[:n]) != binary.LittleEndian.Uint32(event[n:]) {
			return size, nil
		}
		size += int64(len(head)) + int64(len(event))
	}
}

// onlyEnd returns err unless it is an end of the input.
func onlyEnd(err error) error {
	if err == io.EOF || err == io.ErrUnexpectedEOF {
		return nil
	}
	return err
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

func maskedChecksum(data []byte) uint32 {
	sum := crc32.Checksum(data, castagnoli)
	return (sum>>15 | sum<<17) + 0xa282ead8
}
