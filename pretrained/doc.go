// Package pretrained opens folders of published transformers: config.json,
// model.safetensors or its index, and a tokenizer. Open makes a model of package model
// and keeps the names of its weights, so that Save gives the folder back.
//
// One file describes each family of model_types. A field of config.json that changes the function
// and is unknown or unsupported is an error with the name of the field.
package pretrained
