// Package tensorboard encodes records of TensorBoard's event files.
//
// A record (TensorFlow's TFRecord) is the length of an event and the event, each with a checksum: a
// CRC-32C rotated by 15 bits plus a constant. An event is a protocol buffer with fields 1 time, 2
// step, 3 version of the file (first event only), 5 summary. A summary repeats field 1, a value with
// fields 1 tag and 2 number.
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
	Value float64 // stored as float32
}

// version is the version in the first event of a file.
const version = "brain.Event:2"

// AppendHeader appends the first record of a file to dst and returns the result. time is in seconds
// since 1970.
func AppendHeader(dst []byte, time float64) []byte {
	event := appendTime(nil, time)
	return appendRecord(dst, appendBytes(event, 3, []byte(version)))
}

// AppendScalars appends the record of a step to dst and returns the result. time is in seconds since
// 1970.
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

// Wire types of protocol buffers.
const (
	varint  = 0
	fixed64 = 1
	counted = 2
	fixed32 = 5
)

// appendTime appends the field time.
func appendTime(event []byte, time float64) []byte {
	event = append(event, 1<<3|fixed64)
	return binary.LittleEndian.AppendUint64(event, math.Float64bits(time))
}

// appendBytes appends a length-delimited field.
func appendBytes(dst []byte, field byte, value []byte) []byte {
	dst = append(dst, field<<3|counted)
	dst = binary.AppendUvarint(dst, uint64(len(value)))
	return append(dst, value...)
}

// appendRecord appends the record of an event.
func appendRecord(dst, event []byte) []byte {
	at := len(dst)
	dst = binary.LittleEndian.AppendUint64(dst, uint64(len(event)))
	dst = binary.LittleEndian.AppendUint32(dst, maskedChecksum(dst[at:]))
	dst = append(dst, event...)
	return binary.LittleEndian.AppendUint32(dst, maskedChecksum(event))
}

// maxEvent bounds the bytes of an event that WholeRecords reads.
const maxEvent = 1 << 20

// WholeRecords returns the length in bytes of the complete records at the beginning of r. It
// returns an error if a read fails.
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

// onlyEnd returns nil for the end of the input, otherwise err.
func onlyEnd(err error) error {
	if err == io.EOF || err == io.ErrUnexpectedEOF {
		return nil
	}
	return err
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// maskedChecksum returns the masked CRC-32C of data.
func maskedChecksum(data []byte) uint32 {
	sum := crc32.Checksum(data, castagnoli)
	return (sum>>15 | sum<<17) + 0xa282ead8
}
