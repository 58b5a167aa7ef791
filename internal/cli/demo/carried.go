package demo

import (
	"bytes"
	"compress/gzip"
	"embed"
	"io"
	"os"
	"path/filepath"

	"github.com/farfield-ml/farfield/internal/atomicfile"
	"github.com/farfield-ml/farfield/model"
	"github.com/farfield-ml/farfield/train"
)

// carried has the model of the demonstration, in the two files of package model with weights of 16 bits,
// and the text that the model did not learn.
//
// The model is a decoder of bytes with softmax attention: four layers of width 64, four heads of width 16, a
// convolution over four bytes before attention and MLP, and no positions, so that it can read beyond the 2048
// bytes of its training. It learned the first nine tenths of Tiny Shakespeare, whose text is in the public
// domain; the last tenth is unseen.txt.gz. make demo-model does all of it again: it trains on one thread by
// model/train.json, six minutes of one core, rounds the weights to bfloat16 and writes the files. On one
// instruction set the weights have the same bits again.
//
//go:embed model/config.json model/model.safetensors model/unseen.txt.gz
var carried embed.FS

// writeCarried writes the model to the folder dir, as a model of bytes that every verb reads.
func writeCarried(dir string) error {
	packed, err := os.MkdirTemp("", "farfield-demo-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(packed)
	for _, name := range []string{model.ConfigFile, model.WeightsFile} {
		data, err := carried.ReadFile("model/" + name)
		if err != nil {
			return err
		}
		if err := atomicfile.WriteBytes(filepath.Join(packed, name), data); err != nil {
			return err
		}
	}
	m, err := model.Load(packed)
	if err != nil {
		return err
	}
	return train.SaveByteModel(dir, m)
}

// unseenText returns the text that the model did not learn.
func unseenText() (string, error) {
	data, err := carried.ReadFile("model/unseen.txt.gz")
	if err != nil {
		return "", err
	}
	r, err := gzip.NewReader(bytes.NewReader(data))
	if err != nil {
		return "", err
	}
	text, err := io.ReadAll(r)
	return string(text), err
}
