package published

import "github.com/farfield-ml/farfield/model"

// VectorPooling returns the pooling of the vectors of the folder dir. It is model.PoolMean if the
// folder does not say, or if package model does not have the folder's pooling. It returns an error
// if modules.json or a file beside it cannot be read.
func VectorPooling(dir string) (model.Pool, error) {
	s, err := readSentence(dir, 0)
	if err != nil {
		return "", err
	}
	if len(s.pools) == 1 {
		switch s.pools[0] {
		case poolFirst:
			return model.PoolFirst, nil
		case poolLast:
			return model.PoolLast, nil
		}
	}
	return model.PoolMean, nil
}
