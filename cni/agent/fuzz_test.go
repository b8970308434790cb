package agent

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/coe-bridge/coe-bridge/cni/call"
)

// FuzzConfiguration: the agent does not crash on any configuration. An accepted one has only known
// settings, and requests only what can be given.
func FuzzConfiguration(f *testing.F) {
	for _, text := range []string{
		`{"cniVersion":"1.1.0","name":"coe","type":"coe-cni","runtimeConfig":{"ips":["10.0.0.1/24"],"mac":"0a:58:0a:2a:00:02","bandwidth":{}}}`,
		`{"name":"coe","args":{"cni":{"ips":["fd00::1"]}},"isDefaultGateway":false,"cni.dev/x":1}`,
		`{"cniVersion":"1.0.0","name":"coe","prevResult":{"interfaces":[{"name":"eth0","sandbox":"/n","mac":"0a:58:0a:2a:00:02"},null],"ips":[{"interface":0,"address":"10.0.0.1/24","gateway":"10.0.0.2"},null],"routes":[{"dst":"0.0.0.0/0","gw":"10.0.0.2"},null]}}`,
		`{"name":"coe","prevResult":{"ips":null}}`, `{"ipam":{"type":"x"}}`, `{"mtuu":1}`, `[]`, `null`,
	} {
		f.Add(text, "IgnoreUnknown=1;K8S_POD_NAMESPACE=web;K8S_POD_NAME=front;IP=10.0.0.1;MAC=0a:58:0a:2a:00:02;CommonArgs=x")
	}
	f.Fuzz(func(t *testing.T, text, args string) {
		n, err := readNetwork([]byte(text))
		if err != nil || n.verify([]byte(text)) != nil {
			return
		}
		require.True(t, n.IPAM.IsEmpty())
		var keys map[string]json.RawMessage
		require.NoError(t, json.Unmarshal([]byte(text), &keys))
		at, err := newAttachment(call.Request{ContainerID: "c1", IfName: "eth0", Netns: "/n", Args: args}, n)
		if err != nil {
			return
		}
		require.True(t, at.pod.namespace != "" && (at.pod.name != "" || !at.pod.external))
		_, _ = at.answered()
	})
}
