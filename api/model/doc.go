// Package model is Kubernetes state as it is reflected into etcd: protobuf
// messages, the layout of their keys, and the changes that flow from etcd to the
// cache.
//
// # Invariants
//
// Values are canonical: equal state has equal bytes, so a write of equal state is
// seen and left out. A value is never changed after it was handed over.
package model

//go:generate protoc --plugin=../../.bin/protoc-gen-go --proto_path=../.. --go_out=../.. --go_opt=module=github.com/sluice-net/sluice api/model/model.proto
