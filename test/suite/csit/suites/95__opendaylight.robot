*** Settings ***
Documentation       A bridge whose backend is an OpenDaylight: the objects in OpenDaylight's config tree.
Resource            ../resources/entries.resource
Resource            ../resources/netvirt.resource

Suite Setup         Write Pod And External Entry
Suite Teardown      Remove All Entries And External Entry

Test Tags           opendaylight


*** Variables ***
${PODS}             ${DRAFT02.data}/${POD.container}
${ELAN}             ${NODE_ADDRESS}:${NAMESPACE}
${INTERFACE}        ${NAMESPACE}:${POD_NAME}
${EXTERNAL}         7cd2b6bb-6e3a-4c0c-8d54-5f4c6c1f2d10
${EXTERNAL_ENTRY}   /restconf/config/elan:elan-instances/elan-instance/${EXTERNAL}


*** Test Cases ***
The Pod Has Its Objects
    [Documentation]    OpenDaylight has every leaf of the model, with the same value. It can have further leaves.
    FOR    ${kind}    ${name}    IN
    ...    ${ELAN_INSTANCES}    ${ELAN}
    ...    ${INTERFACES}    ${INTERFACE}
    ...    ${ELAN_INTERFACES}    ${INTERFACE}
        ${here}=    Wait For Object    ${kind}    ${name}
        ${there}=    Object In OpenDaylight    ${kind}    ${name}
        Dictionary Should Contain Sub Dictionary    ${there}    ${here}
    END

The Pod Is In A VPN With Its Address
    [Documentation]    Without isolation all pods are members of one vpn-instance. The vpn-instance of the namespace
    ...    exists too.
    Object In OpenDaylight    ${VPN_INSTANCES}    ${NAMESPACE}
    ${here}=    Wait For Object    ${VPN_INTERFACES}    ${INTERFACE}
    ${there}=    Object In OpenDaylight    ${VPN_INTERFACES}    ${INTERFACE}
    Lists Should Be Equal    ${there}[odl-l3vpn:adjacency]    ${here}[odl-l3vpn:adjacency]
    VAR    ${vpn}    ${there}[vpn-instance-names][0][vpn-name]
    Object In OpenDaylight    ${VPN_INSTANCES}    ${vpn}

Equal Objects Are Not Written Again
    [Documentation]    A new write of an elan-instance would give it another elan-tag.
    ${before}=    Object In OpenDaylight    ${ELAN_INSTANCES}    ${ELAN}
    Kill The Controller
    Start The Controller
    Wait For Sync
    ${after}=    Object In OpenDaylight    ${ELAN_INSTANCES}    ${ELAN}
    Dictionaries Should Be Equal    ${after}    ${before}

All Objects Are Removed With The Last Pod
    Request    DELETE    ${PODS}/pods/${POD_UID}    expected=200
    Wait For Removal    ${INTERFACES}    ${INTERFACE}
    Wait For Removal    ${ELAN_INSTANCES}    ${ELAN}
    Wait For Sync
    Missing In OpenDaylight    ${VPN_INTERFACES}    ${INTERFACE}
    Missing In OpenDaylight    ${ELAN_INTERFACES}    ${INTERFACE}
    Missing In OpenDaylight    ${INTERFACES}    ${INTERFACE}
    Missing In OpenDaylight    ${ELAN_INSTANCES}    ${ELAN}
    Missing In OpenDaylight    ${VPN_INSTANCES}    ${NAMESPACE}

External Entries Are Kept
    Object In OpenDaylight    ${ELAN_INSTANCES}    ${EXTERNAL}


*** Keywords ***
Write Pod And External Entry
    Begin Without Entries
    Request    PUT    ${EXTERNAL_ENTRY}    {"elan-instance": [{"elan-instance-name": "${EXTERNAL}"}]}
    ...    session=backend    expected=201
    ${body}=    Body    pod.json
    Request    POST    ${PODS}    ${body}    expected=204
    Wait For Object    ${VPN_INTERFACES}    ${INTERFACE}
    Wait For Sync

Remove All Entries And External Entry
    Remove All Entries
    Request    DELETE    ${EXTERNAL_ENTRY}    session=backend    expected=200
