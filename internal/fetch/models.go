package fetch

// models is the catalogue of trained models. Each has a revision, so that its files do not change.
var models = []Set{
	{
		Name: "all-MiniLM-L6-v2", IsModel: true, Doc: "sentence embeddings of width 384, English (BERT of 6 layers, 23 million weights)",
		Terms: "Apache-2.0",
		Files: hubFiles("sentence-transformers/all-MiniLM-L6-v2", "1110a243fdf4706b3f48f1d95db1a4f5529b4d41",
			File{Name: "config.json", Size: 612, SHA256: "953f9c0d463486b10a6871cc2fd59f223b2c70184f49815e7efbcab5d8908b41"},
			File{Name: "modules.json", Size: 349, SHA256: "84e40c8e006c9b1d6c122e02cba9b02458120b5fb0c87b746c41e0207cf642cf"},
			File{Name: "1_Pooling/config.json", Size: 190, SHA256: "4be450dde3b0273bb9787637cfbd28fe04a7ba6ab9d36ac48e92b11e350ffc23"},
			File{Name: "sentence_bert_config.json", Size: 53, SHA256: "fc1993fde0a95c24ec6c022539d41cf6e2f7c9721e5415d6fb6897472a9cd4b7"},
			File{Name: "tokenizer.json", Size: 466247, SHA256: "be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037"},
			File{Name: "model.safetensors", Size: 90868376, SHA256: "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"},
		),
	},
	{
		Name: "bge-small-en-v1.5", IsModel: true, Doc: "sentence embeddings of width 384, English (BERT of 12 layers, 33 million weights)",
		Terms: "MIT",
		Files: hubFiles("BAAI/bge-small-en-v1.5", "5c38ec7c405ec4b44b94cc5a9bb96e735b38267a",
			File{Name: "config.json", Size: 743, SHA256: "094f8e891b932f2000c92cfc663bac4c62069f5d8af5b5278c4306aef3084750"},
			File{Name: "modules.json"},
			File{Name: "1_Pooling/config.json"},
			File{Name: "sentence_bert_config.json"},
			File{Name: "tokenizer.json", Size: 711396, SHA256: "d241a60d5e8f04cc1b2b3e9ef7a4921b27bf526d9f6050ab90f9267a1f9e5c66"},
			File{Name: "model.safetensors", Size: 133466304, SHA256: "3c9f31665447c8911517620762200d2245a2518d6e7208acc78cd9db317e21ad"},
		),
	},
	{
		Name: "bge-base-en-v1.5", IsModel: true, Doc: "sentence embeddings of width 768, English (BERT of 12 layers, 109 million weights)",
		Terms: "MIT",
		Files: hubFiles("BAAI/bge-base-en-v1.5", "a5beb1e3e68b9ab74eb54cfd186867f64f240e1a",
			File{Name: "config.json", Size: 777, SHA256: "bc00af31a4a31b74040d73370aa83b62da34c90b75eb77bfa7db039d90abd591"},
			File{Name: "modules.json"},
			File{Name: "1_Pooling/config.json"},
			File{Name: "sentence_bert_config.json"},
			File{Name: "tokenizer.json", Size: 711396, SHA256: "d241a60d5e8f04cc1b2b3e9ef7a4921b27bf526d9f6050ab90f9267a1f9e5c66"},
			File{Name: "model.safetensors", Size: 437955512, SHA256: "c7c1988aae201f80cf91a5dbbd5866409503b89dcaba877ca6dba7dd0a5167d7"},
		),
	},
}

// hubFiles sets the addresses of a model's files: a revision of a repository on the hub.
func hubFiles(repository, revision string, files ...File) []File {
	for i := range files {
		files[i].URLs = []string{"https://huggingface.co/" + repository + "/resolve/" + revision + "/" + files[i].Name}
	}
	return files
}
