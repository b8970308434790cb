package yang_test

import (
	"bytes"
	"encoding/json"
	"testing"

	"github.com/coe-bridge/coe-bridge/yang"
)

const podBody = `{"pod:pods":[{"uid":"8f2a6d5e-0000-4000-8000-000000000001","name":"busybox1",` +
	`"network-NS":"default","host-ip-address":"192.168.33.12","port-mac-address":"",` +
	`"interface":[{"uid":"8f2a6d5e-0000-4000-8000-000000000001",` +
	`"network-id":"00000000-0000-0000-0000-000000000000","network-type":"VXLAN",` +
	`"segmentation-id":7,"ip-address":"10.11.2.28"}]}]}`

// BenchmarkDecode compares the validating decoder with encoding/json into maps. It should take
// at most 2.5 times as long.
func BenchmarkDecode(b *testing.B) {
	schema, err := yang.Load()
	if err != nil {
		b.Fatal(err)
	}
	coe := schema.Module("pod").Child("coe")
	body := []byte(podBody)
	b.Run("encoding-json", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			var out map[string]any
			if err := json.Unmarshal(body, &out); err != nil {
				b.Fatal(err)
			}
		}
	})
	for name, mode := range map[string]yang.Mode{"strict": yang.Strict, "lenient": yang.Lenient} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := schema.DecodeJSON(body, coe, "/pod:coe", mode); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
	decoded, err := schema.DecodeJSON(body, coe, "/pod:coe", yang.Strict)
	if err != nil {
		b.Fatal(err)
	}
	pod := decoded[0]
	var stored bytes.Buffer
	yang.EncodeObject(&stored, pod)
	b.Run("stored", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, err := yang.DecodeObject(stored.Bytes(), pod.Node); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("validate", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if err := schema.Validate(pod, "/pod:coe", nil); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("encode", func(b *testing.B) {
		b.ReportAllocs()
		var out bytes.Buffer
		for b.Loop() {
			out.Reset()
			yang.EncodeJSON(&out, decoded, yang.RFC7951)
		}
	})
}
