package restconf

import (
	"fmt"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// The three samples of the Netvirt COE integration specification, section "REST
// API", as they are printed.
var samples = []struct{ name, path, body, answer string }{
	{"dhcp", "/restconf/config/dhcp_allocation_pool:dhcp_allocation_pool/", `{
    "dhcp_allocation_pool:network": [
     {
        "dhcp_allocation_pool:allocation-pool": [
          {
            "dhcp_allocation_pool:subnet": "192.168.10.0/24",
            "dhcp_allocation_pool:allocate-to": "192.168.10.50",
            "dhcp_allocation_pool:gateway": "192.168.10.2",
            "dhcp_allocation_pool:allocate-from": "192.168.10.3"
           }
        ],
        "dhcp_allocation_pool:network-id": "pod-namespace"
      }
    ]
  }`, `{"dhcp_allocation_pool":{"network":[{"network-id":"pod-namespace","allocation-pool":[{"subnet":"192.168.10.0/24",
	"allocate-from":"192.168.10.3","allocate-to":"192.168.10.50","gateway":"192.168.10.2"}]}]}}`},
	{"pod", "/restconf/config/pod:coe", `{
    "pod:pods": [
      {
        "pod:version": "Some version",
        "pod:uid": "AC092D9B-E9Eb-BAE2-eEd8-74Aca2B7Fa9C",
        "pod:interface": [
          {
            "pod:uid": "7bA91A3A-f17E-2eBB-eDec-3BBBEa27DCa7",
            "pod:ip-address": "0.147.0.7",
            "pod:network-id": "fBAD80df-B0B4-0580-8D14-11FcaCED2ac6",
            "pod:network-type": "FLAT",
            "pod:segmentation-id": "0"
          }
        ]
      }
    ]
  }`, `{"coe":{"pods":[{"uid":"ac092d9b-e9eb-bae2-eed8-74aca2b7fa9c","version":"Some version","interface":[{"uid":"7ba91a3a-f17e-2ebb-edec-3bbbea27dca7",
	"ip-address":"0.147.0.7","network-id":"fbad80df-b0b4-0580-8d14-11fcaced2ac6","network-type":"FLAT","segmentation-id":0}]}]}}`},
	{"service", "/restconf/config/service:service-information", `{
    "service:service-information": {
      "service:services": [
        {
          "service:uid": "EeafFFB7-D9Fc-aAeD-FBc9-8Af8BFaacDD9",
          "service:cluster-ip-address": "5.21.5.0",
          "service:endpoints": [
            "AFbcF0EB-Fc3f-acea-A438-5CFDfCEfbcb0"
          ]
        }
      ]
    }
  }`, `{"service-information":{"services":[{"uid":"eeafffb7-d9fc-aaed-fbc9-8af8bfaacdd9","cluster-ip-address":"5.21.5.0",
	"endpoints":["afbcf0eb-fc3f-acea-a438-5cfdfcefbcb0"]}]}}`},
}

func TestPublishedSamples(t *testing.T) {
	for _, s := range samples {
		t.Run(s.name, func(t *testing.T) {
			b := newBed(t)
			require.Equal(t, 204, b.do("POST", s.path, s.body).status)
			require.JSONEq(t, s.answer, b.do("GET", s.path, "").body)
			require.Equal(t, 409, b.do("POST", s.path, s.body).status)
			require.Equal(t, 200, b.do("PUT", s.path, s.body).status)
			require.JSONEq(t, s.answer, b.do("GET", s.path, "").body)
			require.Equal(t, 200, b.do("DELETE", s.path, "").status)
			require.Equal(t, 201, b.do("PUT", s.path, s.body).status)
			require.JSONEq(t, s.answer, b.do("GET", s.path, "").body)
		})
	}
}

// Two writers of one pod's interfaces, and others who delete and make the
// container under them: nothing that was acknowledged is lost.
func TestWritersSideBySide(t *testing.T) {
	b := newBed(t)
	require.Equal(t, 201, b.do("PUT", pods+uid1, `{"pods":[{"uid":"`+uid1+`"}]}`).status)
	const writers, each = 4, 20
	var all sync.WaitGroup
	for w := range writers {
		all.Go(func() {
			for i := range each {
				id := fmt.Sprintf("9f2a6d5e-0000-4000-8000-%012d", w*each+i)
				if got := b.do("POST", pods+uid1, `{"interface":[{"uid":"`+id+`"}]}`); got.status != 204 {
					t.Errorf("%d %s", got.status, got.body)
				}
				if got := b.do("PUT", pods+id, pod(id)); got.status != 201 {
					t.Errorf("%d %s", got.status, got.body)
				}
			}
		})
	}
	all.Wait()
	for i := range writers * each {
		id := fmt.Sprintf("9f2a6d5e-0000-4000-8000-%012d", i)
		require.Equal(t, 200, b.do("GET", pods+uid1+"/interface/"+id, "").status)
		require.Equal(t, 200, b.do("GET", pods+id, "").status)
	}

	// An entry never outlives its container's mark.
	for range 3 {
		all.Go(func() {
			for range each {
				b.do("PUT", pods+uid2, pod(uid2))
				b.do("DELETE", coe, "")
			}
		})
	}
	all.Wait()
	units := b.store.Tree(b.cfg.Schema.Module("pod").Child("coe"))
	if len(units) > 0 {
		require.Equal(t, b.cfg.Schema.Module("pod").Child("coe"), units[0].Node)
	}
}
