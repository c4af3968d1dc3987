// Package model defines the Kubernetes state as Sluice keeps it in etcd: protobuf messages, the
// layout of their keys, and the changes that agents read from there.
//
// # Invariants
//
// Values are canonical: equal state has equal bytes, so that writes which change nothing can be
// recognized and skipped. A value is never modified after it was handed over.
package model

//go:generate protoc --plugin=../../.bin/protoc-gen-go --proto_path=../.. --go_out=../.. --go_opt=module=github.com/sluice-net/sluice api/model/model.proto
