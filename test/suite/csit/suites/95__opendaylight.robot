*** Settings ***
Documentation       A bridge whose backend is an OpenDaylight: what that has in its config tree.
Resource            ../resources/entries.resource
Resource            ../resources/netvirt.resource

Suite Setup         Write A Pod And What Is Another's
Suite Teardown      Remove All Entries And What Is Another's

Test Tags           opendaylight


*** Variables ***
${PODS}             ${DRAFT02.data}/${POD.container}
${ELAN}             ${NODE_ADDRESS}:${NAMESPACE}
${INTERFACE}        ${NAMESPACE}:${POD_NAME}
${ANOTHERS}         7cd2b6bb-6e3a-4c0c-8d54-5f4c6c1f2d10
${ANOTHERS_ENTRY}   /restconf/config/elan:elan-instances/elan-instance/${ANOTHERS}


*** Test Cases ***
The Pod Has Its Objects
    [Documentation]    Each leaf of the model is there as it is here; more may be.
    FOR    ${kind}    ${name}    IN
    ...    ${ELAN_INSTANCES}    ${ELAN}
    ...    ${INTERFACES}    ${INTERFACE}
    ...    ${ELAN_INTERFACES}    ${INTERFACE}
        ${here}=    Wanted    ${kind}    ${name}
        ${there}=    Object In OpenDaylight    ${kind}    ${name}
        Dictionary Should Contain Sub Dictionary    ${there}    ${here}
    END

The Pod Is A Member With Its Address
    [Documentation]    While nothing is isolated all pods are members of one vpn-instance, and that of the
    ...    namespace is there.
    Object In OpenDaylight    ${VPN_INSTANCES}    ${NAMESPACE}
    ${here}=    Wanted    ${VPN_INTERFACES}    ${INTERFACE}
    ${there}=    Object In OpenDaylight    ${VPN_INTERFACES}    ${INTERFACE}
    Lists Should Be Equal    ${there}[odl-l3vpn:adjacency]    ${here}[odl-l3vpn:adjacency]
    VAR    ${vpn}    ${there}[vpn-instance-names][0][vpn-name]
    Object In OpenDaylight    ${VPN_INSTANCES}    ${vpn}

What Agrees Is Not Written Again
    [Documentation]    An elan-instance that is written draws another elan-tag.
    ${before}=    Object In OpenDaylight    ${ELAN_INSTANCES}    ${ELAN}
    Cut The Power
    Switch On
    Wait For Sync
    ${after}=    Object In OpenDaylight    ${ELAN_INSTANCES}    ${ELAN}
    Dictionaries Should Be Equal    ${after}    ${before}

All Goes With The Last Pod
    Request    DELETE    ${PODS}/pods/${POD_UID}    expected=200
    Gone    ${INTERFACES}    ${INTERFACE}
    Wait For Sync
    Missing In OpenDaylight    ${VPN_INTERFACES}    ${INTERFACE}
    Missing In OpenDaylight    ${ELAN_INTERFACES}    ${INTERFACE}
    Missing In OpenDaylight    ${INTERFACES}    ${INTERFACE}
    Missing In OpenDaylight    ${ELAN_INSTANCES}    ${ELAN}
    Missing In OpenDaylight    ${VPN_INSTANCES}    ${NAMESPACE}

What Is Another's Stays
    Object In OpenDaylight    ${ELAN_INSTANCES}    ${ANOTHERS}


*** Keywords ***
Write A Pod And What Is Another's
    Begin With Nothing
    Request    PUT    ${ANOTHERS_ENTRY}    {"elan-instance": [{"elan-instance-name": "${ANOTHERS}"}]}
    ...    session=backend    expected=201
    ${body}=    Body    pod.json
    Request    POST    ${PODS}    ${body}    expected=204
    Wanted    ${VPN_INTERFACES}    ${INTERFACE}
    Wait For Sync

Remove All Entries And What Is Another's
    Remove All Entries
    Request    DELETE    ${ANOTHERS_ENTRY}    session=backend    expected=200
