"""The most frequent short words of some languages, by which a text in the Latin alphabet is known.

In:  nothing.
Out: STOP_WORDS: ISO 639-1 code → words in lower case. Words that several languages share are kept in all of them; whoever counts divides.
Portuguese, Italian, Dutch, Swedish, Polish and Turkish are here so that they are not taken for a neighbour.
"""

from __future__ import annotations

_LISTS = {
    "en": """the of and to in is you that it he was for on are as with his they at be this have from or had by not but what all were we
        when your can said there an each which she do how their if will up about out many then them these so some her would make like
        him into has could more go no my than who been its now did get may our i me us any where please should just don't i'm it's
        does why because here very""",
    "de": """der die das und in zu den ist von mit sich auf für nicht ein eine als auch es an werden aus er hat dass sie nach wird bei
        einer um am sind noch wie einem über einen so zum war haben nur oder aber vor zur bis mehr durch man sein wurde sei ich wir
        ihr ihre ihnen ihren du mir mich kann können bitte wenn was wo wann warum unser unsere keine kein diese dieser dieses im vom
        beim schon sehr hier dann dem des""",
    "id": """yang dan di ini itu dengan untuk tidak dari dalam akan pada juga saya anda kami kita mereka ke karena bisa ada atau dapat
        oleh sudah telah saat sebagai lebih bahwa adalah jika apa siapa kapan bagaimana mengapa kenapa mana bukan belum harus lagi
        hanya sangat seperti kalau setelah antara banyak para dia ia kamu silakan silahkan tolong terima kasih bagi hari jam berapa
        secara hingga sampai tersebut""",
    "es": """de la que el en y a los del se las por un para con no una su al lo como más pero sus le ya o este sí porque esta entre cuando
        muy sin sobre también me hasta hay donde quien desde todo nos durante todos uno les ni contra otros ese eso ante ellos e esto
        mí antes algunos qué unos yo otro otras otra él tanto esa estos mucho es son está están puede usted nuestro nuestra tiene
        cómo dónde cuándo gracias ser fue mi ella nosotros estaba favor aquí tengo tienen hacer había hace así cada vez bien era""",
    "fr": """de la le et les des en un du une que est pour qui dans a par plus pas au sur ne se ce il sont avec ou son lui nous comme mais
        on tout sa vous votre vos je tu elle ils elles cette ces leur aux être fait été si même aussi bien sans peut dont très ici où
        quand pourquoi comment notre nos mon ma mes c'est n'est j'ai l'on d'un d'une qu'il qu'on s'il merci avez êtes sommes avons
        moi toi""",
    "pt": """de a o que e do da em um para é com não uma os no se na por mais as dos como mas foi ao ele das tem à seu sua ou ser quando
        muito há nos já está eu também só pelo pela até isso ela entre era depois sem mesmo aos ter seus quem nas me esse eles estão
        você essa num nem suas meu às minha têm numa pelos elas havia seja qual será nós tenho lhe deles são pode obrigado""",
    "it": """di e il la che è per un in non una sono da con del si a le i al dei come più gli lo della ma nel alla su anche ha delle se
        questo questa ci o ho mi dal nella io tu noi voi loro essere hanno cosa quando dove perché chi molto ancora solo tutto tutti
        può grazie suo sua dell degli agli alle sul sulla nei nelle quella quello era stato""",
    "nl": """de het een en van ik te dat die in je is niet zijn op aan met als voor er maar om dan zou of wat mijn men dit zo door over ze
        zich bij ook tot uit der daar haar naar heb hoe heeft hebben deze u want nog zal me zij nu ge geen omdat iets worden toch al
        waren veel meer doen toen moet ben zonder kan hun dus alles onder ja werd wordt wij kunt uw graag onze""",
    "sv": """och det att i en jag hon som han på den med var sig för så till är men ett om hade de av icke mig du henne då sin nu har inte
        hans honom skulle hennes där min man ej vid kunde något från ut när efter upp vi dem vara vad över än dig kan sina här ha mot
        alla under någon eller allt mycket sedan denna själv detta åt utan varit hur ingen mitt ni bli blev oss din dessa""",
    "pl": """i w na nie z się do to jest że o jak a po co za od ale ja czy dla tak tym go by był już tylko być może jego jej ich był była
        było są przez przy kiedy gdzie bardzo mnie mi ci pan pani proszę jeśli które który która oraz ten ta te tego""",
    "tr": """bir ve bu da de için ile çok ne daha gibi en o kadar ben sen biz siz var yok mi mı mu mü değil olarak olan olduğu ama veya
        her şey nasıl nerede zaman sonra önce lütfen ki ya hem bunu onu şu diye ise""",
}  # fmt: skip
STOP_WORDS: dict[str, frozenset[str]] = {language: frozenset(words.split()) for language, words in _LISTS.items()}
