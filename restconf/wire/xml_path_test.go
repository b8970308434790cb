package wire

import (
	"encoding/xml"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/coe-bridge/coe-bridge/yang"
)

// An error-path in XML is an instance-identifier: names have prefixes, which are declared.
func TestPathsInXML(t *testing.T) {
	schema, err := yang.Load()
	require.NoError(t, err)
	const vpn, adjacency = `xmlns:l3vpn="urn:huawei:params:xml:ns:yang:l3vpn"`, `xmlns:odl-l3vpn="urn:opendaylight:netvirt:l3vpn"`
	for path, want := range map[string]string{
		"/pod:coe": `xmlns:pod="urn:opendaylight:coe:northbound:pod">/pod:coe`,
		`/l3vpn:vpn-interfaces/vpn-interface[name="it's/[a:b]"]/odl-l3vpn:adjacency[ip_address='1.2.3.4/32']/next-hop-ip-list[.='5.6.7.8']`: vpn + " " + adjacency +
			`>/l3vpn:vpn-interfaces/l3vpn:vpn-interface[l3vpn:name=&#34;it&#39;s/[a:b]&#34;]/odl-l3vpn:adjacency[odl-l3vpn:ip_address=&#39;1.2.3.4/32&#39;]/odl-l3vpn:next-hop-ip-list[.=&#39;5.6.7.8&#39;]`,
		"/ietf-yang-patch:yang-patch/edit[2]": `xmlns:ietf-yang-patch="` + PatchSpace + `">/ietf-yang-patch:yang-patch/ietf-yang-patch:edit[2]`,
		`/pod:coe/pods[uid="a`:                `xmlns:pod="urn:opendaylight:coe:northbound:pod">/pod:coe/pod:pods[pod:uid=&#34;a`,
	} {
		got, err := xml.Marshal(ErrorEntry{PathXML: newXMLPath(schema, path)})
		require.NoError(t, err)
		require.Contains(t, string(got), "<error-path "+want+"</error-path>", path)
	}
	require.Nil(t, newXMLPath(schema, ""))
}
