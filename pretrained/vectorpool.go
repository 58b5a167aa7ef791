package pretrained

import "github.com/farfield-ml/farfield/model"

// VectorPooling returns the pooling of the vectors of a folder, a constant of package model. It is
// model.PoolMean where the folder does not say, and in place of maxima, which models do not have. It
// returns an error if modules.json or a file beside it cannot be read.
func VectorPooling(dir string) (string, error) {
	s, err := readSentence(dir)
	if err != nil {
		return "", err
	}
	switch s.pool {
	case poolFirst:
		return model.PoolFirst, nil
	case poolLast:
		return model.PoolLast, nil
	}
	return model.PoolMean, nil
}
